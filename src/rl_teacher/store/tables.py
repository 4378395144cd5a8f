"""The tables, as SQLAlchemy maps them; `migrations/` is how a database gets there.

    metrics >-- experiments --< comparisons >-- clips (left, right)
                     |             |     |
                     ^             ^     ^
                  tallies       leases labels
                     v             v     v
                     |             |     |
    credentials >----------- labelers ---------< events

Labels are append-only: a second answer of the same labeler to the same comparison is a second row,
and their newest counts. Labelers never override each other. Events are append-only too, and outlive
the experiment that they tell of. What is counted (`num_...`, `is_open`, `is_disputed`, `tallies`)
is kept in the transaction that changes it.
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

HASH_LENGTH = 64
"""Characters of a SHA-256 in hexadecimal."""

MAYBE_JSON = JSON(none_as_null=True)
"""JSON where None means that there is none, in the database's own word for it."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC; SQLite forgets time zones, so it is given none and gets it back here."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time without a zone: it would mean another moment on another machine."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time with its zone was needed, not {value!r}")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give every moment back in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Root of the tables; every constraint has a name, so that a migration can drop it."""

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
    """One named teaching effort.

    Attributes:
        instructions: what whoever labels is told.
        target_labels: how many are wanted in all.
        status: what the trainer is doing, in its own words.
        latest_episode: what the trainer shows of the agent.
        num_asked: comparisons.
        num_answered: those that count a label.
        num_open: those that wait for one.
        assignment: Assignment policy; see `records.AssignmentPolicy`.
        control: what the owner wants of the trainer; see `records.Control`.
        diagnostics: what the trainer found out about its predictor.
    """

    __tablename__ = "experiments"
    # Note: without AUTOINCREMENT, SQLite gives a deleted row's id to the next one, and an answer
    # that was under way would land on another question.
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - SQLAlchemy's own spelling

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(255), unique=True)
    env_id: Mapped[str]
    config: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    instructions: Mapped[str] = mapped_column(Text, server_default="")
    target_labels: Mapped[int | None]
    status: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    status_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    latest_episode: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    num_asked: Mapped[int] = mapped_column(server_default="0")
    num_answered: Mapped[int] = mapped_column(server_default="0")
    num_open: Mapped[int] = mapped_column(server_default="0")
    assignment: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    control: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)
    diagnostics: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)


class Clip(Base):
    """A segment that was asked about; it belongs to its environment and experiments share it.

    Attributes:
        kind: `poses` or `video`; this and what follows are null until the clip can be shown.
        media_key: of its file in the media.
        scene_hash: of the scene that its poses move; null for a video.
        fps: frames a second.
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
        wanted: how many labelers shall answer it.
        gold: the known answer, if this one is there to see how well somebody labels.
        num_labels: labelers, not excluded, whose answer counts now.
        is_open: it can be shown, and more labelers shall answer it.
        is_disputed: two of those labelers contradict each other.
    """

    __tablename__ = "comparisons"
    __table_args__ = (
        UniqueConstraint("experiment_id", "left_hash", "right_hash"),
        Index(None, "experiment_id", "asked_at_step"),
        Index(None, "left_hash"),
        Index(None, "right_hash"),
        Index(None, "experiment_id", "id"),
        Index(None, "experiment_id", "num_labels", "id"),
        Index(None, "experiment_id", "is_disputed", "id"),
        Index(
            "ix_comparisons_open",
            "experiment_id",
            "asked_at_step",
            "id",
            sqlite_where=text("is_open = 1"),
            postgresql_where=text("is_open"),
        ),
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


class Labeler(Base):
    """Whoever answers: a person, or a synthetic teacher under its name.

    Attributes:
        role: `owner`, `labeler` or `teacher`.
        excluded_at: since when nothing learns from their labels; null while something does.
    """

    __tablename__ = "labelers"
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - SQLAlchemy's own spelling

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    role: Mapped[str] = mapped_column(String(16), server_default="labeler")
    excluded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Credential(Base):
    """A token that says who somebody is; only its SHA-256 is kept.

    Attributes:
        hint: the token's first characters, by which a person tells two apart.
        last_used_at: to the minute.
        experiment: the only one that it opens, by name; null for all.
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
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    experiment: Mapped[str | None] = mapped_column(String(255))


class Invite(Base):
    """A link that makes one credential, once; only the SHA-256 of its token is kept.

    Attributes:
        name: of the labeler whom it is for; null where they choose one.
        used_by: the labeler whom it let in.
        experiment: the only one that its credential opens, by name; null for all.
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
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    used_by: Mapped[int | None] = mapped_column(ForeignKey("labelers.id"))
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    experiment: Mapped[str | None] = mapped_column(String(255))


class Lease(Base):
    """A comparison that is in somebody's hands; gone once they answer it.

    Attributes:
        purpose: of the answer, as in `Label`.
        token: what the answer names it by.
    """

    __tablename__ = "leases"

    comparison_id: Mapped[int] = mapped_column(
        ForeignKey("comparisons.id", ondelete="CASCADE"), primary_key=True
    )
    labeler_id: Mapped[int] = mapped_column(ForeignKey("labelers.id"), primary_key=True, index=True)
    purpose: Mapped[str] = mapped_column(String(16))
    token: Mapped[UUID] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class Tally(Base):
    """How much one labeler has done in one experiment.

    Attributes:
        num_labels: comparisons that have their answer now.
        num_given: answers ever given, repeats too.
        first_label_id: their first label here.
        last_label_id: their newest.
        last_label_at: when that came.
    """

    __tablename__ = "tallies"

    experiment_id: Mapped[int] = mapped_column(
        ForeignKey("experiments.id", ondelete="CASCADE"), primary_key=True
    )
    labeler_id: Mapped[int] = mapped_column(ForeignKey("labelers.id"), primary_key=True, index=True)
    num_labels: Mapped[int] = mapped_column(server_default="0")
    num_given: Mapped[int] = mapped_column(server_default="0")
    first_label_id: Mapped[int]
    last_label_id: Mapped[int]
    last_label_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Label(Base):
    """One answer; never changed once written.

    Attributes:
        answer: in the comparison's own order, whatever side was shown; null takes back this
            labeler's answers before it.
        is_swapped: whether the left clip was shown on the right.
        response_ms: from the moment that both clips were seen.
        details: what else the page recorded, such as replays.
        purpose: `answer`, or `repeat` where the same labeler was asked again.
        lease: `held`, `late` where it had expired, or `none` where there was none.
    """

    __tablename__ = "labels"
    __table_args__ = (
        CheckConstraint(
            "answer IN ('left', 'right', 'equal', 'cannot_tell')", name="is_one_of_four"
        ),
        # Note: whoever looks for somebody's newest answer finds it in the index alone.
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


class Event(Base):
    """Something that was done, and by whom; never changed, never deleted."""

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


class Metrics(Base):
    """A trainer's figures at one step."""

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
