"""The tables, as SQLAlchemy maps them; `migrations/` is how a database gets there.

    metrics >-- experiments --< comparisons >-- clips (left, right)
                                     |
                                     ^
                                  labels >-- labelers

Labels are append-only: a second answer to the same comparison is a second row, the newest counts.
Events are append-only too, and outlive the experiment that they tell of.
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


class Clip(Base):
    """A segment that was asked about; it belongs to its environment and experiments share it.

    Attributes:
        kind: `poses` or `video`; this and what follows are null until the clip can be shown.
        media_key: of its file in the media.
        scene_hash: of the scene that its poses move; null for a video.
        fps: frames a second.
    """

    __tablename__ = "clips"
    __table_args__ = (Index(None, "env_id", "num_steps"),)

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
    """A question: which of these two clips is better?"""

    __tablename__ = "comparisons"
    __table_args__ = (
        UniqueConstraint("experiment_id", "left_hash", "right_hash"),
        Index(None, "experiment_id", "asked_at_step"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"))
    left_hash: Mapped[str] = mapped_column(ForeignKey("clips.content_hash"))
    right_hash: Mapped[str] = mapped_column(ForeignKey("clips.content_hash"))
    asked_at_step: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Labeler(Base):
    """Whoever answers: a person, or a synthetic teacher under its name."""

    __tablename__ = "labelers"
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - SQLAlchemy's own spelling

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Label(Base):
    """One answer; never changed once written.

    Attributes:
        answer: in the comparison's own order, whatever side was shown; null takes back the answers
            before it.
        is_swapped: whether the left clip was shown on the right.
        response_ms: from the moment that both clips were seen.
        details: what else the page recorded, such as replays.
    """

    __tablename__ = "labels"
    __table_args__ = (
        CheckConstraint(
            "answer IN ('left', 'right', 'equal', 'cannot_tell')", name="is_one_of_four"
        ),
        # Note: whoever looks for the newest answer finds it in the index alone.
        Index(None, "comparison_id", "id", "answer"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparisons.id", ondelete="CASCADE"))
    answer: Mapped[str | None] = mapped_column(String(16))
    labeler_id: Mapped[int] = mapped_column(ForeignKey("labelers.id"), index=True)
    request_id: Mapped[UUID] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    is_swapped: Mapped[bool] = mapped_column(server_default=false())
    response_ms: Mapped[int | None]
    details: Mapped[dict[str, Any] | None] = mapped_column(MAYBE_JSON)


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
