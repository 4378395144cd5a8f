"""Clips: the segments that experiments of an environment share, and their media."""

from collections.abc import Mapping

from sqlalchemy import bindparam, delete, exists, func, not_, or_, select

from rl_teacher.common.errors import MediaNotFound
from rl_teacher.store import sql
from rl_teacher.store.counters import COMPARISONS_WITH_CLIPS, recount
from rl_teacher.store.database import Database
from rl_teacher.store.records import ClipView, Page, RenderedClip
from rl_teacher.store.tables import Clip, Comparison, Episode, Experiment

MEDIA_COLUMNS = ("kind", "media_key", "scene_hash", "num_frames", "fps")

CLIP_BY_HASH = select(*sql.columns_of(ClipView, Clip)).where(
    Clip.content_hash == bindparam("content_hash")
)

IS_COMPARED = or_(
    Clip.content_hash.in_(select(Comparison.left_hash).where(sql.OF_EXPERIMENT)),
    Clip.content_hash.in_(select(Comparison.right_hash).where(sql.OF_EXPERIMENT)),
)
IS_KEPT_EPISODE = Clip.content_hash.in_(
    select(Episode.clip_hash).where(Episode.experiment_id == bindparam("experiment_id"))
)

CLIPS_OF_EXPERIMENT = select(*sql.columns_of(ClipView, Clip)).where(IS_COMPARED)

RENDERED = select(*sql.columns_of(ClipView, Clip)).where(Clip.kind.is_not(None))

SHARED = (
    select(Clip.content_hash)
    .where(Clip.env_id == bindparam("env_id"), Clip.num_steps == bindparam("num_steps"))
    .order_by(Clip.created_at, Clip.content_hash)
)
SHARED_AND_RENDERED = SHARED.where(Clip.kind.is_not(None))


class Clips:
    """The clips of all environments."""

    def __init__(self, database: Database) -> None:
        self._database = database
        upsert = sql.insert_into(database.dialect, Clip)
        media = {name: upsert.excluded[name] for name in MEDIA_COLUMNS}
        self._upsert = upsert.on_conflict_do_update(index_elements=[Clip.content_hash], set_=media)

    def publish(self, clips: Mapping[str, RenderedClip]) -> None:
        """Set the media of clips by content hash, which opens their comparisons for labels.

        Unknown clips are added.
        """
        if not clips:
            return
        moment = self._database.now()
        rows = [
            {"content_hash": content_hash, "created_at": moment, **vars(clips[content_hash])}
            for content_hash in sorted(clips)
        ]
        with self._database.writing() as connection:
            connection.execute(self._upsert, rows)
            found: set[int] = set()
            for chunk in sql.in_chunks(sorted(clips)):
                found.update(
                    connection.execute(COMPARISONS_WITH_CLIPS, {"hashes": chunk}).scalars()
                )
            recount(connection, sorted(found))

    def get(self, content_hash: str) -> ClipView:
        """Return one clip, rendered or not.

        Raises:
            MediaNotFound: There is no such clip.
        """
        for row in self._database.rows(CLIP_BY_HASH, content_hash=content_hash):
            return ClipView(**row)
        raise MediaNotFound(
            f"There is no clip {content_hash[:80]!r} in the store. Ask for the comparison again."
        )

    def of_experiment(self, experiment_id: int) -> dict[str, ClipView]:
        """Return the clips that an experiment compares, rendered or not, by content hash."""
        rows = self._database.rows(CLIPS_OF_EXPERIMENT, experiment_id=experiment_id)
        return {row["content_hash"]: ClipView(**row) for row in rows}

    def shared(self, env_id: str, num_steps: int, *, only_rendered: bool = False) -> list[str]:
        """Return the hashes of an environment's clips from all experiments, oldest first.

        Args:
            env_id: Environment.
            num_steps: Length of the clips.
            only_rendered: Leave out clips without media.
        """
        statement = SHARED_AND_RENDERED if only_rendered else SHARED
        rows = self._database.rows(statement, env_id=env_id, num_steps=num_steps)
        return [row["content_hash"] for row in rows]

    def page(
        self,
        env_id: str,
        after: int | None = None,
        limit: int = 50,
        experiment_id: int | None = None,
    ) -> Page[ClipView]:
        """Return a page of an environment's rendered clips, newest first.

        Args:
            env_id: Environment.
            after: `next` of the previous page: the number of older clips.
            limit: Maximum number of rows.
            experiment_id: Only clips that this experiment compares, or keeps as episodes.
        """
        clips = RENDERED.where(Clip.env_id == env_id)
        if experiment_id is not None:
            of_experiment = clips.where(or_(IS_COMPARED, IS_KEPT_EPISODE))
            clips = of_experiment.params(experiment_id=experiment_id)
        if after is None:
            after = int(self._database.scalar(select(func.count()).select_from(clips.subquery())))
        first = max(0, after - limit)
        ordered = clips.order_by(Clip.created_at, Clip.content_hash)
        rows = self._database.rows(ordered.offset(first).limit(after - first))
        return Page([ClipView(**row) for row in reversed(rows)], first or None)

    def rendered(self) -> list[ClipView]:
        """Return all clips that have media."""
        return [ClipView(**row) for row in self._database.rows(RENDERED)]

    def delete_unused(self, content_hash: str) -> str | None:
        """Delete a clip that neither a comparison nor an episode of an agent refers to.

        Returns:
            The key of its media, which can be removed; None if the clip is kept.
        """
        is_compared = exists().where(
            or_(Comparison.left_hash == content_hash, Comparison.right_hash == content_hash)
        )
        is_episode = exists().where(
            or_(
                Experiment.latest_episode["clip"].as_string() == content_hash,
                Experiment.first_episode["clip"].as_string() == content_hash,
            )
        )
        is_kept = exists().where(Episode.clip_hash == content_hash)
        statement = (
            delete(Clip)
            .where(
                Clip.content_hash == content_hash,
                not_(is_compared),
                not_(is_episode),
                not_(is_kept),
            )
            .returning(Clip.media_key)
        )
        with self._database.writing() as connection:
            return connection.execute(statement).scalar_one_or_none()
