"""Every error that a user can cause, or must know of.

    RlTeacherError                     exit code 2: the person can mend it
    |-- BadInput                       what was given
    |   |-- UnknownName                an environment, agent, teacher, selector or schedule
    |   |-- BadConfig                  a value out of range, or values that do not go together
    |   |-- ConfigMismatch             the same experiment name with another configuration
    |   |-- BadExperimentName          a name that cannot be a folder
    |   |-- SegmentTooLong             clips longer than an episode
    |   |-- BadObservation             NaN or infinite numbers from an environment
    |   |-- TeacherFailed              a teacher's own function raised, or answered nonsense
    |   |-- NoPredictor                a predicted reward before anything was fitted
    |   |-- ExperimentNotFound
    |   |-- ComparisonNotFound         never asked, or deleted
    |   |-- BadLabelerName             a name that nobody may have
    |   |-- LabelerExists              a name that somebody has
    |   |-- LabelerNotFound
    |   |-- InviteNotFound
    |   |-- InviteUnusable             used, expired, revoked or unknown
    |   |-- BadCursor                  a place in a list that no list gave
    |   `-- MediaNotFound              a clip or a scene that is not there
    |-- CorruptCheckpoint              a file that is not what was written
    |-- CorruptClip                    a clip's file that is not what was written
    |-- StoreUnavailable               the database cannot be opened, read or written
    |-- RunFolderUnusable              read-only, or the disk is full
    `-- ExperimentInUse                another process is running it

A text says what was given, what was needed, and what to do.
"""

import difflib
from collections.abc import Iterable


class RlTeacherError(Exception):
    """The root of the tree; carries the exit code of the command line."""

    exit_code = 2


class BadInput(RlTeacherError):
    """Something the person gave, and can mend."""


class UnknownName(BadInput):
    """A name that is not in a registry; the text offers the nearest ones."""

    def __init__(self, kind: str, given: str, known: Iterable[str]) -> None:
        names = list(known)
        by_lower = {name.lower(): name for name in names}
        near = difflib.get_close_matches(given.lower(), by_lower, n=4, cutoff=0.5)
        offered = [by_lower[name] for name in near]
        hint = f"Did you mean {', '.join(offered)}?" if offered else f"Known: {', '.join(names)}."
        super().__init__(f"There is no {kind} called {given!r}. {hint}")
        self.nearest = offered


class BadConfig(BadInput):
    """A value out of range, or values that do not go together."""


class ConfigMismatch(BadInput):
    """An experiment of this name exists with another configuration."""


class BadExperimentName(BadInput):
    """A name that cannot be the name of a folder."""


class SegmentTooLong(BadInput):
    """Clips were asked for that are longer than an episode."""


class BadObservation(BadInput):
    """An environment returned numbers that are not finite."""


class TeacherFailed(BadInput):
    """A teacher raised, or answered something that is not an answer."""


class NoPredictor(BadInput):
    """A predicted reward was asked for before anything was fitted."""


class ExperimentNotFound(BadInput):
    """No experiment of this name."""


class ComparisonNotFound(BadInput):
    """Comparisons that are not in the store: never asked, or deleted with their experiment."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = list(ids)
        named = ", ".join(map(str, self.ids[:5])) + (", ..." if len(self.ids) > 5 else "")
        super().__init__(
            f"Not in the store: comparison {named}. It was never asked, or was deleted with its "
            "experiment. Ask for the next comparison."
        )


class BadLabelerName(BadInput):
    """A name that nobody may have: empty, long, with control characters, or kept for others."""


class LabelerExists(BadInput):
    """Somebody has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"There is a labeler {name[:100]!r} already. Choose another name.")


class LabelerNotFound(BadInput):
    """Nobody has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"There is no labeler {name[:100]!r}. Look at the list of labelers, or add one."
        )


class InviteNotFound(BadInput):
    """No invite of this number."""


class InviteUnusable(BadInput):
    """An invite that lets nobody in; `reason` is `used`, `expired`, `revoked` or `unknown`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        what = {
            "used": "was used already",
            "expired": "has expired",
            "revoked": "was taken back",
            "unknown": "is none of ours, or was cut short",
        }[reason]
        super().__init__(f"This invite {what}. Ask whoever runs the study for a new link.")


class BadCursor(BadInput):
    """A place in a list that no list gave."""

    def __init__(self, cursor: str) -> None:
        super().__init__(
            f"{cursor[:80]!r} is no place in this list. Give back `next` of the page before, "
            "or nothing to begin."
        )


class MediaNotFound(BadInput):
    """No clip or scene of this name."""


class CorruptCheckpoint(RlTeacherError):
    """A file is not what was written: cut short, altered, or of another version."""


class CorruptClip(RlTeacherError):
    """A clip's file is not what was written: cut short, altered, or of another version."""


class StoreUnavailable(RlTeacherError):
    """The database cannot be opened, read or written."""


class RunFolderUnusable(RlTeacherError):
    """The run folder cannot be written: read-only, or the disk is full."""


class ExperimentInUse(RlTeacherError):
    """Another process is running this experiment."""
