"""The tables as SQLAlchemy models; `migrations/` creates them.

    metrics >-- experiments --< comparisons >-- clips (left, right)
                     |             |     |
                     ^             ^     ^
                  tallies       leases labels
                     v             v     v
                     |             |     |
    credentials >----------- labelers ---------< events

Labels are append-only: a second answer of the same labeler to the same comparison is a second row,
and the newest is the current one. Labelers never override each other. Events are append-only, too,
and outlive their experiment. Counts (`num_...`, `is_open`, `is_disputed`, `tallies`) are updated
in the transaction that changes them.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import JSON

from rl_teacher.store.records import normalise_experiment_name

HASH_LENGTH = 64
"""Length of a SHA-256 in hexadecimal."""

MAYBE_JSON = JSON(none_as_null=True)
"""JSON that stores None as SQL NULL and not as JSON null."""


class UtcDateTime(TypeDecorator[datetime]):
    """A time in UTC; SQLite drops time zones, so they are removed and restored here."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; a time without zone is refused, since it depends on the machine."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time with a zone is needed, not {value!r}")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class ExperimentName(TypeDecorator[str]):
    """Name of an experiment, which is normalised where it is stored and where it is looked up."""

    impl = String(255)
    cache_ok = True

    def process_bind_param(
        self,
        value: str | None,
        dialect: Dialect,  # noqa: ARG002 - SQLAlchemy's own signature
    ) -> str | None:
        """Normalise the name."""
        return None if value is None else normalise_experiment_name(value)


class Base(DeclarativeBase):
    """Base class; every constraint has a name, so that a migration can drop it."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Experiment(Base):
    """A named experiment.

    Attributes:
        instructions: Instructions for the labelers.
        target_labels: Label budget.
        status: Latest status of the trainer.
        latest_episode: Latest episode of the agent that can be watched.
        first_episode: First one.
        num_asked: Number of comparisons.
        num_answered: Number of comparisons with a current label.
        num_open: Number of comparisons that are rendered and need more labels.
        assignment: Assignment policy; see `records.AssignmentPolicy`.
        control: Commands of the owner; see `records.Control`.
        diagnostics: Latest diagnostics of the reward predictor.
        archived_at: Time since which it is hidden from labelers; null while it is not.
        tags: The owner's tags.
    """

    __tablename__ = "experiments"
    # Without AUTOINCREMENT, SQLite reuses the ids of deleted rows, and an answer on its way would
    # be stored for another comparison.
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - SQLAlchemy's own spelling

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(ExperimentName, unique=True)
    env_id: Mapped[str]
    config: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    instructions: Mapped[str] = mapped_column(Text, server_default="")
    target_labels: Mapped[int | None]
    status: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    status_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    latest_episode: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    first_episode: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    num_asked: Mapped[int] = mapped_column(server_default="0")
    num_answered: Mapped[int] = mapped_column(server_default="0")
    num_open: Mapped[int] = mapped_column(server_default="0")
    assignment: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    control: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    diagnostics: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    archived_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    tags: Mapped[list[str] | None] = mapped_column(MAYBE_JSON)


class ExperimentLock(Base):
    """Lock of an experiment, by its name, since it outlives the row of an experiment started over.

    Attributes:
        token: Token of the one who holds the lock.
        holder: Process that holds it; see `experiment_locks.Holder`.
        heartbeat_at: Time of its last heartbeat.
    """

    __tablename__ = "experiment_locks"

    name: Mapped[str] = mapped_column(ExperimentName, primary_key=True)
    token: Mapped[UUID]
    holder: Mapped[dict[str, Any]] = mapped_column(JSON)
    acquired_at: Mapped[datetime] = mapped_column(UtcDateTime)
    heartbeat_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Clip(Base):
    """A segment of an environment, shared by its experiments.

    Attributes:
        kind: `poses` or `video`; null until the clip is rendered, like the following columns.
        media_key: Key of the file in the media store.
        scene_hash: Hash of the scene that the poses belong to; null for a video.
        fps: Frames per second.
    """

    __tablename__ = "clips"
    __table_args__ = (
        Index(None, "env_id", "num_steps"),
        Index(None, "env_id", "created_at", "content_hash"),
    )

    content_hash: Mapped[str] = mapped_column(String(HASH_LENGTH), primary_key=True)
    env_id: Mapped[str]
    num_steps: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    kind: Mapped[str | None] = mapped_column(String(16))
    media_key: Mapped[str | None]
    scene_hash: Mapped[str | None] = mapped_column(String(HASH_LENGTH))
    num_frames: Mapped[int | None]
    fps: Mapped[float | None]


class Comparison(Base):
    """A question: which of these two clips is better?

    Attributes:
        number: Number within the experiment, from 1, in the order asked.
        wanted: Number of labelers who shall answer it; 0 once it is withdrawn.
        gold: Known answer, against which labelers are measured.
        num_labels: Number of current labels of labelers who are not excluded.
        is_open: It is rendered and needs more labels.
        is_disputed: Two of those labels contradict each other.
    """

    __tablename__ = "comparisons"
    __table_args__ = (
        UniqueConstraint("experiment_id", "left_hash", "right_hash"),
        Index(None, "left_hash"),
        Index(None, "right_hash"),
        Index(None, "experiment_id", "id"),
        Index(
            "ix_comparisons_gold",
            "experiment_id",
            "id",
            sqlite_where=text("gold IS NOT NULL"),
            postgresql_where=text("gold IS NOT NULL"),
        ),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"))
    left_hash: Mapped[str] = mapped_column(ForeignKey("clips.content_hash"))
    right_hash: Mapped[str] = mapped_column(ForeignKey("clips.content_hash"))
    asked_at_step: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    wanted: Mapped[int] = mapped_column(server_default="1")
    gold: Mapped[str | None] = mapped_column(String(16))
    num_labels: Mapped[int] = mapped_column(server_default="0")
    is_open: Mapped[bool] = mapped_column(server_default=false())
    is_disputed: Mapped[bool] = mapped_column(server_default=false())
    number: Mapped[int] = mapped_column(server_default="0")


Index(
    "ix_comparisons_open",
    Comparison.experiment_id,
    Comparison.asked_at_step.desc(),
    Comparison.id,
    sqlite_where=text("is_open = 1"),
    postgresql_where=text("is_open"),
)


class Labeler(Base):
    """A person or a synthetic teacher.

    Attributes:
        role: `owner`, `labeler` or `teacher`.
        excluded_at: Time since which their labels are not used; null while they are.
    """

    __tablename__ = "labelers"
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - SQLAlchemy's own spelling

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    role: Mapped[str] = mapped_column(String(16), server_default="labeler")
    excluded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Credential(Base):
    """A token that identifies a labeler; only its SHA-256 is stored.

    Attributes:
        hint: First characters of the token, to tell two apart.
        experiment: Name of the only experiment that it opens; null for all.
    """

    __tablename__ = "credentials"
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - SQLAlchemy's own spelling

    id: Mapped[int] = mapped_column(primary_key=True)
    labeler_id: Mapped[int] = mapped_column(ForeignKey("labelers.id"), index=True)
    token_hash: Mapped[str] = mapped_column(String(HASH_LENGTH), unique=True)
    hint: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    experiment: Mapped[str | None] = mapped_column(ExperimentName)


class EndedSession(Base):
    """A session of a browser that its user has ended by signing out, or a used one-time code.

    Sessions that were not ended need no row: the service verifies them by their signature.
    """

    __tablename__ = "ended_sessions"

    id: Mapped[str] = mapped_column(String(HASH_LENGTH), primary_key=True)
    ended_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class Invite(Base):
    """A link that creates credentials; only the SHA-256 of its token is stored.

    Attributes:
        name: Name of the labeler; null if they choose one.
        max_uses: Number of people whom it admits.
        num_uses: Number of people who have used it.
        used_at: Time of the latest use.
        used_by: Labeler who used it last.
        experiment: Name of the only experiment that its credential opens; null for all.
    """

    __tablename__ = "invites"
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - SQLAlchemy's own spelling

    id: Mapped[int] = mapped_column(primary_key=True)
    token_hash: Mapped[str] = mapped_column(String(HASH_LENGTH), unique=True)
    hint: Mapped[str] = mapped_column(String(16))
    name: Mapped[str | None]
    role: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    max_uses: Mapped[int] = mapped_column(server_default="1")
    num_uses: Mapped[int] = mapped_column(server_default="0")
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    used_by: Mapped[int | None] = mapped_column(ForeignKey("labelers.id"))
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    experiment: Mapped[str | None] = mapped_column(ExperimentName)


class Lease(Base):
    """A comparison that a labeler has claimed; deleted when they answer it.

    Attributes:
        purpose: Purpose of the answer, as in `Label`.
        token: Token that the answer refers to.
    """

    __tablename__ = "leases"

    comparison_id: Mapped[int] = mapped_column(
        ForeignKey("comparisons.id", ondelete="CASCADE"), primary_key=True
    )
    labeler_id: Mapped[int] = mapped_column(ForeignKey("labelers.id"), primary_key=True, index=True)
    purpose: Mapped[str] = mapped_column(String(16))
    token: Mapped[UUID] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Tally(Base):
    """Counts of one labeler in one experiment.

    Attributes:
        num_labels: Number of comparisons that they currently answer.
        num_given: Number of answers ever given, including repeats.
        last_label_id: Their newest label.
        last_label_at: Time of their newest label.
    """

    __tablename__ = "tallies"

    experiment_id: Mapped[int] = mapped_column(
        ForeignKey("experiments.id", ondelete="CASCADE"), primary_key=True
    )
    labeler_id: Mapped[int] = mapped_column(ForeignKey("labelers.id"), primary_key=True, index=True)
    num_labels: Mapped[int] = mapped_column(server_default="0")
    num_given: Mapped[int] = mapped_column(server_default="0")
    last_label_id: Mapped[int]
    last_label_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Label(Base):
    """An answer; never changed once written.

    Attributes:
        answer: Answer in the comparison's own left-right order; null withdraws the labeler's
            earlier answers.
        is_swapped: The left clip was shown on the right.
        response_ms: Time since both clips were visible.
        details: Other data of the page, such as the number of replays.
        purpose: `answer`, or `repeat` if the same labeler was asked again.
        lease: `held`, `late` if it had expired, or `none`.
        is_too_fast: Given before half of the longer clip could have been played.
        imported: Original values of a label of an imported data set; null for all others. Only an
            import writes it, so that no labeler can pretend that a label is another person's.
    """

    __tablename__ = "labels"
    __table_args__ = (
        CheckConstraint(
            "answer IN ('left', 'right', 'equal', 'cannot_tell')", name="is_one_of_four"
        ),
        # A covering index: the newest answer of a labeler is found without reading the table.
        Index("ix_labels_newest", "comparison_id", "labeler_id", "purpose", "id", "answer"),
        Index(None, "labeler_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"))
    answer: Mapped[str | None] = mapped_column(String(16))
    labeler_id: Mapped[int] = mapped_column(ForeignKey("labelers.id"))
    request_id: Mapped[UUID] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    is_swapped: Mapped[bool] = mapped_column(server_default=false())
    response_ms: Mapped[int | None]
    details: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    purpose: Mapped[str] = mapped_column(String(16), server_default="answer")
    lease: Mapped[str] = mapped_column(String(16), server_default="none")
    is_too_fast: Mapped[bool] = mapped_column(server_default=false())
    imported: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)


class Event(Base):
    """An entry of the audit log; never changed, never deleted."""

    __tablename__ = "events"
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - SQLAlchemy's own spelling

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int | None] = mapped_column(
        ForeignKey("experiments.id", ondelete="SET NULL"), index=True
    )
    labeler_id: Mapped[int | None] = mapped_column(ForeignKey("labelers.id"))
    kind: Mapped[str] = mapped_column(String(64))
    details: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Episode(Base):
    """An episode of an experiment's agent at an earlier step.

    Attributes:
        episode: Its rewards and returns, as in `Experiment.latest_episode`.
    """

    __tablename__ = "episodes"
    __table_args__ = (
        UniqueConstraint("experiment_id", "step"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"))
    step: Mapped[int] = mapped_column(BigInteger)
    clip_hash: Mapped[str] = mapped_column(String(64), ForeignKey("clips.content_hash"), index=True)
    episode: Mapped[dict[str, Any]] = mapped_column(JSON)


class Metrics(Base):
    """Logged metrics at one step."""

    __tablename__ = "metrics"
    __table_args__ = (
        Index(None, "experiment_id", "id"),
        Index(None, "experiment_id", "step"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"))
    step: Mapped[int] = mapped_column(BigInteger)
    row: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
