"""Exceptions that a user can cause or needs to handle.

    RlTeacherError                     exit code 2: the user can fix it
    |-- BadInput                       invalid input
    |   |-- UnknownName                an environment, agent, teacher, selector or schedule
    |   |-- BadConfig                  a value out of range, or values that exclude each other
    |   |-- MissingExtra               an optional package that cannot be imported
    |   |-- ConfigMismatch             the same experiment name with another configuration
    |   |-- SegmentTooLong             clips longer than an episode
    |   |-- BadObservation             values of an environment that cannot be used
    |   |-- TeacherFailed              a teacher function raised, or returned an invalid answer
    |   |-- NoPredictor                a predicted reward before the first fit
    |   |-- BadLabelerName             an invalid or reserved name
    |   |-- InviteUnusable             used, expired, revoked or unknown
    |   |-- BadRanking                 an ordering of clips that cannot be stored
    |   |-- NameTaken                  ExperimentExists, LabelerExists
    |   `-- NotFound                   unknown, deleted or hidden from the user
    |       |-- BadExperimentName      a name that cannot be a folder
    |       |-- ExperimentNotFound
    |       |-- ComparisonNotFound
    |       |-- LabelerNotFound
    |       |-- InviteNotFound
    |       |-- RankingNotFound
    |       `-- MediaNotFound          a clip or a scene
    |-- Diverged                       losses, weights or predicted rewards that are not finite
    |-- CorruptCheckpoint              a truncated or altered file, or of another version
    |   `-- CorruptClip                a truncated or altered clip
    |-- CorruptBackup                  an incomplete or altered backup
    |-- StoreUnavailable               the database cannot be opened, read or written
    |-- RunFolderUnusable              read-only, or the disk is full
    |-- RendererKilled                 the process that renders images was killed
    |-- ClusterUnavailable             a Ray cluster that cannot be reached or used
    `-- ExperimentInUse                another process runs the experiment

Each message states what was given, what was needed, and what to do.
"""

import difflib
from collections.abc import Iterable

INVALID_CONTENT = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""Exceptions of parsing a file with invalid content: JSON of other types, sizes that do not fit,
numbers out of range."""


class RlTeacherError(Exception):
    """Base class of all errors of this package.

    Attributes:
        exit_code: exit code of the command line.
        status: HTTP status of the service's response.
        slug: name of the problem in the service's response.
        title: summary of the problem in the service's response.
    """

    exit_code = 2
    status = 500
    slug = "unexpected"
    title = "Internal error"


class BadInput(RlTeacherError):
    """Invalid input that the user can correct."""

    status = 422
    slug = "not-valid"
    title = "Request validation failed"


class NotFound(BadInput):
    """Something that does not exist, or that the user may not see."""

    status = 404
    slug = "not-found"
    title = "Not found"


class NameTaken(BadInput):
    """A name that something else has."""

    status = 409
    slug = "name-taken"
    title = "Name already taken"


class UnknownName(BadInput):
    """A name that is not in a registry; the message suggests similar ones."""

    def __init__(self, kind: str, given: str, known: Iterable[str], where: str = "") -> None:
        """Find the similar names.

        Args:
            kind: what has the name.
            given: the unknown name.
            known: all names.
            where: sentence that says where many names are listed; by default, the message lists
                all of them if none is similar.
        """
        names = list(known)
        by_lower = {name.lower(): name for name in names}
        near = difflib.get_close_matches(given.lower(), by_lower, n=4, cutoff=0.5)
        offered = [by_lower[name] for name in near]
        hint = where or f"Known: {', '.join(names)}."
        if offered:
            hint = f"Did you mean {', '.join(offered)}?"
        super().__init__(f"There is no {kind} called {given!r}. {hint}")
        self.nearest = offered


class BadConfig(BadInput):
    """A value out of range, or values that exclude each other."""


class MissingExtra(BadInput):
    """An optional package that cannot be imported."""

    def __init__(self, need: str, extra: str, error: ImportError) -> None:
        """Say how to install it.

        Args:
            need: such as "--cluster needs Ray".
            extra: optional dependencies that contain the package.
            error: error of the import.
        """
        super().__init__(
            f"{need}, which cannot be imported: {error}. Install it with "
            f'`pip install "rl-teacher[{extra}]"`.'
        )


class ConfigMismatch(BadInput):
    """An experiment of the same name with another configuration.

    Attributes:
        fault: what differs, without the remedy, for commands that lack its options.
    """

    def __init__(self, fault: str, remedy: str) -> None:
        # A list of differences ends with its line.
        separator = "\n" if "\n" in fault else " "
        super().__init__(fault + separator + remedy)
        self.fault = fault


class BadExperimentName(NotFound):
    """A name that cannot be the name of a folder."""


class SegmentTooLong(BadInput):
    """A clip length that exceeds the length of an episode."""


class BadObservation(BadInput):
    """An observation or reward that is not finite or too large, or a result of another form."""


class TeacherFailed(BadInput):
    """A teacher function that raised, or returned an invalid answer."""


class NoPredictor(BadInput):
    """A request for predicted rewards before the first fit."""


class ExperimentNotFound(NotFound):
    """An experiment name that does not exist.

    Attributes:
        unknown: the name, if the message does not suggest similar ones: those who see it may not
            know of other experiments.
    """

    def __init__(self, message: str, unknown: str | None = None) -> None:
        super().__init__(message)
        self.unknown = unknown


class ExperimentExists(NameTaken):
    """An experiment name that is taken."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The experiment name {name[:100]!r} is taken. Choose another name.")


class ComparisonNotFound(NotFound):
    """Comparisons that are not in the store: unknown, or deleted with their experiment."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = list(ids)
        named = ", ".join(map(str, self.ids[:5])) + (", ..." if len(self.ids) > 5 else "")
        super().__init__(
            f"Comparison {named} is not in the store. It does not exist, or was deleted with its "
            "experiment. Request the next comparison."
        )


class BadLabelerName(BadInput):
    """A labeler name that is empty, too long, reserved, or has control characters."""


class LabelerExists(NameTaken):
    """A labeler name that is taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"The labeler name {name[:100]!r} is taken. Choose another name.")


class LabelerNotFound(NotFound):
    """A labeler name that does not exist."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"There is no labeler {name[:100]!r}. List the labelers, or add one.")


class InviteNotFound(NotFound):
    """An invite id that does not exist."""


class InviteUnusable(BadInput):
    """An invite that cannot be accepted; `reason` is used, expired, revoked or unknown."""

    status = 409
    slug = "invite-unusable"
    title = "Invite not usable"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        what = {
            "used": "has already been used",
            "expired": "has expired",
            "revoked": "was revoked",
            "unknown": "is unknown or incomplete",
        }[reason]
        super().__init__(f"This invite {what}. Ask the owner of the experiment for a new link.")


class BadRanking(BadInput):
    """An ordering of clips that cannot be stored."""


class RankingNotFound(NotFound):
    """A ranking that its labeler has not submitted."""


class MediaNotFound(NotFound):
    """A clip or scene that does not exist."""


class Diverged(RlTeacherError):
    """Losses, weights, actions or predicted rewards that are NaN or infinite."""


class CorruptCheckpoint(RlTeacherError):
    """A file that is truncated, altered, or of another version."""

    status = 502
    slug = "damaged"
    title = "Stored file corrupt"


class CorruptClip(CorruptCheckpoint):
    """A clip file that is truncated, altered, or of another version."""


class CorruptBackup(RlTeacherError):
    """A backup that is incomplete, altered, or of a newer version."""


class StoreUnavailable(RlTeacherError):
    """A database, or a remote folder of media, that cannot be opened, read or written.

    Attributes:
        public: text for labelers, if the message contains a driver's text, which may name servers.
        is_transient: whether the same may succeed later: the database is locked, or its server
            is unreachable or restarts.
    """

    status = 503
    slug = "unavailable"
    title = "Storage not available"

    def __init__(
        self, message: str, public: str | None = None, *, is_transient: bool = False
    ) -> None:
        super().__init__(message)
        self.public = public
        self.is_transient = is_transient


class RunFolderUnusable(RlTeacherError):
    """A run folder that cannot be written: read-only, or on a full disk."""

    status = 503
    slug = "unavailable"
    title = "Storage not available"


class RendererKilled(RlTeacherError):
    """A process that renders images and was killed, for example because memory ran out."""

    status = 503
    slug = "not-rendered"
    title = "Rendering not available"


class ClusterUnavailable(RlTeacherError):
    """A Ray cluster that cannot be reached, has no usable node, or was lost."""


class ExperimentInUse(RlTeacherError):
    """An experiment that another process is running."""

    status = 409
    slug = "running"
    title = "Experiment is running"
