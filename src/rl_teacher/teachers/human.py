"""A person, who answers on the page or at a terminal, when it suits them."""

from rl_teacher.clips.segment import Segment
from rl_teacher.teachers.teacher import Circumstances


def through_the_store(left: Segment, right: Segment, circumstances: Circumstances) -> None:
    """No answer yet: it will come through the store."""
