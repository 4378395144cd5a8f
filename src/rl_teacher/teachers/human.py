"""The human teacher, who answers later on the page or at a terminal."""

from rl_teacher.clips.segment import Segment
from rl_teacher.teachers.teacher import Circumstances


def through_the_store(left: Segment, right: Segment, circumstances: Circumstances) -> None:
    """Return None: the answer arrives through the store."""
