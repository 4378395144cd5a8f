"""The tables, as SQLAlchemy maps them; `migrations/` is how a database gets there.

    experiments --< comparisons >-- clips (left, right)
                        |
                        ^
                     labels

Labels are append-only: a second answer to the same comparison is a second row, the newest counts.
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
    MetaData,
    String,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import JSON

HASH_LENGTH = 64
"""Characters of a SHA-256 in hexadecimal."""


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
    """One named teaching effort."""

    __tablename__ = "experiments"
    # Note: without AUTOINCREMENT, SQLite gives a deleted row's id to the next one, and an answer
    # that was under way would land on another question.
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - SQLAlchemy's own spelling

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(255), unique=True)
    env_id: Mapped[str]
    config: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Clip(Base):
    """A segment that was asked about; it belongs to its environment and experiments share it."""

    __tablename__ = "clips"

    content_hash: Mapped[str] = mapped_column(String(HASH_LENGTH), primary_key=True)
    env_id: Mapped[str]
    num_steps: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Comparison(Base):
    """A question: which of these two clips is better?"""

    __tablename__ = "comparisons"
    __table_args__ = (
        UniqueConstraint("experiment_id", "left_hash", "right_hash"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"))
    left_hash: Mapped[str] = mapped_column(ForeignKey("clips.content_hash"))
    right_hash: Mapped[str] = mapped_column(ForeignKey("clips.content_hash"))
    asked_at_step: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Label(Base):
    """One answer; never changed once written."""

    __tablename__ = "labels"
    __table_args__ = (
        CheckConstraint(
            "answer IN ('left', 'right', 'equal', 'cannot_tell')", name="is_one_of_four"
        ),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    comparison_id: Mapped[int] = mapped_column(
        ForeignKey("comparisons.id", ondelete="CASCADE"), index=True
    )
    answer: Mapped[str] = mapped_column(String(16))
    labeler: Mapped[str]
    request_id: Mapped[UUID] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
