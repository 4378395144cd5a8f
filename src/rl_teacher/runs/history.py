"""History of an agent: its policies and videos at steps spread over the run.

<home>/experiments/<name>/
    history/step-<step>/     a policy, in the format of `rl-teacher export --format safetensors`
    videos/step-<step>.mp4   an episode, if the run writes videos
"""

import re
import shutil
from dataclasses import replace
from pathlib import Path

from rl_teacher.agents.numpy_policy import NumpyPolicy
from rl_teacher.common.files import (
    TEMPORARY_SUFFIX,
    folder_errors,
    write_atomically,
)

GROWTH = 0.25
"""Share by which the number of steps grows from one moment of the history to the next."""
MIN_SHARE = 0.01
"""Distance of two moments, at least, as a share of the run."""

STEP_NAME = re.compile(r"step-(?P<step>\d+)")
"""Name of a policy's folder, and of a video without its suffix."""


def is_due(step: int, last: int | None, num_steps: int) -> bool:
    """Return whether a step belongs to the history of a run.

    A run has at most 20 moments: 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 19, ..., 73 and 91 %. One that
    is extended to ten times the steps gets 10 more, so that none ever has to be deleted.

    Args:
        step: environment steps taken.
        last: step of the previous moment; None if there is none.
        num_steps: planned steps of the run.
    """
    return last is None or step - last >= max(MIN_SHARE * num_steps, GROWTH * last)


class Moments:
    """Files or folders of a run, by step; only the process that holds the run's lock writes.

    Attributes:
        folder: folder that contains them.
    """

    form = "step-{}"
    """Name of that of a step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def steps(self) -> list[int]:
        """Steps that are kept, ascending."""
        matches = (STEP_NAME.fullmatch(path.stem) for path in self.folder.glob("step-*"))
        steps = [int(match["step"]) for match in matches if match]
        return sorted(step for step in steps if self._path(step).exists())

    def drop_after(self, step: int) -> None:
        """Delete those of later steps, which a resumed run writes again, and unfinished ones."""
        later = [self._path(each) for each in self.steps if each > step]
        with folder_errors(self.folder):
            for path in [*later, *self.folder.glob(f"*{TEMPORARY_SUFFIX}")]:
                _remove(path)

    def _path(self, step: int) -> Path:
        return self.folder / self.form.format(step)


class PolicyHistory(Moments):
    """The policies of a run in its folder."""

    def add(self, step: int, policy: NumpyPolicy) -> None:
        """Save the policy of a step; one of the same step is replaced.

        Raises:
            RunFolderUnusable: the folder is read-only or full.
        """
        target = self._path(step)
        unfinished = target.with_name(target.name + TEMPORARY_SUFFIX)
        with folder_errors(self.folder):
            # Renamed when complete, so that neither a reader nor a crash ever sees a part of it.
            _remove(unfinished)
            replace(policy, made_from={"step": step}).save(unfinished)
            _remove(target)
            unfinished.rename(target)

    def load(self, step: int) -> NumpyPolicy:
        """Read the policy of a step.

        Raises:
            BadInput: none is kept.
            CorruptCheckpoint: the files are damaged.
        """
        return NumpyPolicy.load(self._path(step))


class EpisodeVideos(Moments):
    """The videos of a run in its folder."""

    # Padded, so that file managers sort by step.
    form = "step-{:09d}.mp4"

    def add(self, step: int, content: bytes) -> None:
        """Save the video of a step; one of the same step is replaced.

        Raises:
            RunFolderUnusable: the folder is read-only or full.
        """
        with folder_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
            write_atomically(self._path(step), content, is_synced=False)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
