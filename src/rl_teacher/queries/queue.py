"""The queue of queries: comparisons asked through the store, and their answers."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rl_teacher.clips.answer import TARGETS, Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import CorruptCheckpoint
from rl_teacher.common.state_dict import StateDict, array_to_text, text_to_array
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import GivenAnswer, NewLabel
from rl_teacher.store.store import Store
from rl_teacher.teachers.teacher import Teacher, TeacherContext, comparison_rng

Pair = tuple[Segment, Segment]

Recent = tuple[float, float]
"""Mean true return and mean length of the latest episodes; see `EpisodeReturns.recent`."""

Answers = Mapping[int, Answer]
"""Answers to one comparison, by the labelers' ids in the store."""

MAX_SHARED_SEGMENTS = 100
"""Segments of other experiments that may be used in comparisons."""


def mean_target(answers: Answers) -> float | None:
    """Return the mean of several labelers' answers; None if they only answered `cannot_tell`."""
    targets = [TARGETS[answer] for answer in answers.values() if answer in TARGETS]
    return sum(targets) / len(targets) if targets else None


class ClipDisplay(Protocol):
    """Renders and stores the clips that people compare."""

    @property
    def shows_others(self) -> bool:
        """Whether it can render segments of other experiments."""
        ...

    @property
    def hidden(self) -> Set[str]:
        """Content hashes of the clips that were to be shown and cannot be."""
        ...

    def show(self, segments: Iterable[Segment], *, is_recent: bool = True) -> None:
        """Start rendering clips, unless they are stored; add those that cannot be to `hidden`."""
        ...

    def missing(self, content_hashes: Iterable[str]) -> set[str]:
        """Return the hashes of clips that are neither stored nor about to be."""
        ...


@dataclass(frozen=True)
class QueryStore:
    """Storage of an experiment's comparisons, answers and segments.

    Attributes:
        store: comparisons and labels.
        experiment_id: the experiment's id in the store.
        segments: arrays of the compared segments.
        display: shows the clips of segments; None if no person looks at them.
    """

    store: Store
    experiment_id: int
    segments: SegmentFiles
    display: ClipDisplay | None = None


@dataclass(frozen=True)
class NamedTeacher:
    """A teacher as the store knows it.

    Attributes:
        teacher: answers at once, or returns None if a person answers through the store.
        labeler: name of the teacher as a labeler.
        seed: seed of the teacher's randomness.
    """

    teacher: Teacher
    labeler: str
    seed: int


@dataclass
class Query:
    """A comparison that was asked, with the answers read so far.

    Attributes:
        id: comparison id in the store.
        left: content hash of the left segment.
        right: content hash of the right segment.
        answers: newest answer of each labeler, excluded labelers included.
    """

    id: int
    left: str
    right: str
    answers: dict[int, Answer] = field(default_factory=dict)

    @property
    def segments(self) -> tuple[str, str]:
        """Content hashes of both segments."""
        return self.left, self.right


class QueryQueue:
    """Asks comparisons through the store and reads their answers.

    Answers of synthetic teachers take the same path as a person's: through the store.
    """

    def __init__(self, store: QueryStore, teacher: NamedTeacher) -> None:
        self._store = store
        self._teacher = teacher
        self._queries: dict[int, Query] = {}
        self._waiting: set[int] = set()
        self._excluded: frozenset[int] = frozenset()
        self._num_repeated = 0
        # Comparisons of an earlier run that this one has not asked itself.
        self._recovered: set[int] = set()
        self._unread: dict[str, Segment] = {}
        # Not saved in checkpoints: ids belong to one database, and reading the whole log again
        # after a resume changes nothing.
        self._newest_label_id = 0

    @property
    def num_asked(self) -> int:
        """Number of comparisons asked; one that was asked twice counts twice."""
        return len(self._queries) + self._num_repeated

    @property
    def num_waiting(self) -> int:
        """Number of comparisons without an answer."""
        return len(self._waiting)

    @property
    def num_answered(self) -> int:
        """Number of comparisons whose answer has been read."""
        return self.num_asked - len(self._waiting)

    def asked(self) -> list[Query]:
        """Return every query, in the order asked."""
        return list(self._queries.values())

    def query(self, comparison_id: int) -> Query:
        """Return the query of a comparison."""
        return self._queries[comparison_id]

    def answers_to(self, query: Query) -> Answers:
        """Return the answers to a query in the order of labeler ids, without excluded labelers."""
        given = query.answers
        return {who: given[who] for who in sorted(given) if who not in self._excluded}

    def segment(self, content_hash: str) -> Segment:
        """Return one of the compared segments, from disk unless it has just been answered."""
        segment = self._unread.pop(content_hash, None)
        return self._store.segments.load(content_hash) if segment is None else segment

    def save_segment(self, segment: Segment) -> None:
        """Save a segment that later comparisons may contain."""
        self._store.segments.save(segment)

    def shared_segments(self, env_id: str, num_steps: int) -> list[Segment]:
        """Load segments of L steps that other experiments asked about, the newest last."""
        store, display = self._store.store, self._store.display
        own = {
            content_hash
            for asked in store.comparisons.asked(self._store.experiment_id)
            for content_hash in (asked.left_hash, asked.right_hash)
        }
        # A video replays the episode, which only the experiment that recorded it can do.
        only_rendered = display is not None and not display.shows_others
        clips = store.clips.shared(env_id, num_steps, only_rendered=only_rendered)
        others = [each for each in clips if each not in own][-MAX_SHARED_SEGMENTS:]
        missing = display.missing(others) if display and only_rendered else ()
        segments = []
        for content_hash in others:
            if content_hash in missing:
                continue
            # Another machine that uses the same database may have kept its segment to itself.
            with contextlib.suppress(CorruptCheckpoint):
                segments.append(self._store.segments.load(content_hash))
        return segments

    def gold(self) -> dict[int, Answer]:
        """Return the known answers to gold comparisons, the newest if there are many.

        They only serve to estimate the labelers' reliability; targets come from labelers.
        """
        return self._store.store.labels.gold(self._store.experiment_id)

    # --- ask ---

    def ask(self, pairs: Sequence[Pair], step: int, recent: Recent) -> None:
        """Store comparisons, and the answers of a teacher that answers at once.

        Segments are on disk before the comparison that names them is in the store. A comparison
        that a killed run asked before keeps its answer. Pairs with a clip that cannot be shown are
        left out.
        """
        # By hash, so that a segment in several pairs is saved once.
        segments = {s.content_hash: s for pair in pairs for s in pair}
        for segment in segments.values():
            self._store.segments.save(segment)
        # A comparison is offered to labelers once both its clips are rendered.
        if self._store.display is not None:
            self._store.display.show(segments.values())
        hidden = self.hidden
        pairs = [pair for pair in pairs if hidden.isdisjoint(s.content_hash for s in pair)]
        if not pairs:
            return
        hashes = [(left.content_hash, right.content_hash) for left, right in pairs]
        lengths = {s.content_hash: len(s) for pair in pairs for s in pair}
        # The store returns the existing id of a pair that it has, so repeating this after a crash
        # is safe.
        ids = self._enter(hashes, pairs[0][0].env_id, lengths, step)
        known = self._store.store.labels.answers(ids)
        if known:
            # Their labels are older than the newest that was read: read all labels again.
            self._newest_label_id = 0
        # By id, so that a pair which occurs twice is answered once.
        pair_of = dict(zip(ids, pairs, strict=True))
        unanswered = [each for each in pair_of.items() if each[0] not in known]
        labels = list(self._teacher_labels(unanswered, recent))
        self._store.store.labels.add_many(labels)
        # The next read of the answers uses them once.
        self._unread = segments if labels else {}

    def recover(self) -> None:
        """Take over comparisons that earlier runs asked after their last checkpoint.

        A run taught by a person does not ask the same comparisons again after a crash, so their
        answers would be lost. Comparisons without answer that cannot be shown are left out.
        """
        for asked in self._store.store.comparisons.asked(self._store.experiment_id):
            is_waiting = asked.is_rendered and not asked.is_withdrawn
            if asked.id not in self._queries and (asked.is_answered or is_waiting):
                self._recovered.add(asked.id)
                self._add(Query(asked.id, asked.left_hash, asked.right_hash))
        self._newest_label_id = 0

    @property
    def hidden(self) -> Set[str]:
        """Content hashes of the clips that cannot be shown."""
        return frozenset() if self._store.display is None else self._store.display.hidden

    def withdraw_hidden(self) -> None:
        """Render the missing clips of waiting comparisons again; withdraw those that stay hidden.

        A file may have been deleted, or the run resumed with another folder of media.
        """
        display = self._store.display
        if display is None:
            return
        waiting = [self._queries[each] for each in self._waiting]
        missing = display.missing({each for query in waiting for each in query.segments})
        display.show(map(self.segment, missing), is_recent=False)
        hidden = self.hidden
        withdrawn = [each.id for each in waiting if not hidden.isdisjoint(each.segments)]
        # An answer may have arrived since the last read: that comparison counts as answered.
        for each in self._store.store.comparisons.withdraw(withdrawn):
            self._waiting.remove(each)
            del self._queries[each]

    def _enter(
        self,
        hashes: Sequence[tuple[str, str]],
        env_id: str,
        num_steps: Mapping[str, int],
        step: int,
    ) -> list[int]:
        """Store comparisons and return their ids."""
        ids = self._store.store.comparisons.add(
            self._store.experiment_id, hashes, env_id, num_steps, step
        )
        for comparison_id, pair in zip(ids, hashes, strict=True):
            if comparison_id in self._recovered:
                self._recovered.remove(comparison_id)
            elif comparison_id in self._queries:
                # An environment without randomness offers the same pairs again. They count, or a
                # run without further pairs would never reach its number of labels.
                self._num_repeated += 1
            else:
                self._add(Query(comparison_id, *pair))
        return ids

    def _add(self, query: Query) -> None:
        self._queries[query.id] = query
        self._waiting.add(query.id)

    def _teacher_labels(
        self, unanswered: Sequence[tuple[int, Pair]], recent: Recent
    ) -> Iterator[NewLabel]:
        teacher = self._teacher
        for comparison_id, (left, right) in unanswered:
            # Seeded by the comparison and not drawn in sequence: a resumed run gets equal answers,
            # whatever was asked before.
            rng = comparison_rng(teacher.seed, left, right)
            context = TeacherContext(*recent, rng)
            answer = teacher.teacher(left, right, context)
            if answer is not None:
                yield NewLabel(comparison_id, answer, teacher.labeler)

    # --- read answers ---

    def read_answers(self) -> bool:
        """Read the answers given since the last call; return whether there may be any.

        A query whose only answer was taken back waits again.
        """
        excluded = self._store.store.labelers.excluded_ids()
        labels = self._new_labels()
        has_unknown = any(each.comparison_id not in self._queries for each in labels)
        if has_unknown and self._store.display is not None:
            # A killed run asked it, but its clips could not be shown when this one recovered.
            self.recover()
            labels = self._new_labels()
        if not labels and excluded == self._excluded:
            return False
        self._excluded = excluded
        for label in labels:
            self._newest_label_id = max(self._newest_label_id, label.id)
            query = self._queries.get(label.comparison_id)
            if query is None:
                continue
            if label.answer is None:
                query.answers.pop(label.labeler_id, None)
            else:
                query.answers[label.labeler_id] = label.answer
        self._update_waiting()
        return True

    def _new_labels(self) -> list[GivenAnswer]:
        return self._store.store.labels.since(self._store.experiment_id, self._newest_label_id)

    def _update_waiting(self) -> None:
        self._waiting = {q.id for q in self._queries.values() if not self.answers_to(q)}

    # --- state ---

    def state(self) -> StateDict:
        """Return the queries and the answers read so far; segments stay on disk."""
        queries = [[q.left, q.right, q.answers] for q in self._queries.values()]
        return {
            "queries": text_to_array(json.dumps(queries)),
            "excluded": np.asarray(sorted(self._excluded), np.int64),
            "num_repeated": np.asarray(self._num_repeated),
        }

    def load_state(self, state: Mapping[str, np.ndarray], env_id: str) -> None:
        """Restore a saved state.

        Comparisons are found by their segments and not by id, so that a database restored from a
        backup serves as well.
        """
        saved = json.loads(array_to_text(state["queries"]))
        hashes = [(left, right) for left, right, _ in saved]
        clips = {each for pair in hashes for each in pair}
        lengths = {each: len(self.segment(each)) for each in clips}
        ids = self._enter(hashes, env_id, lengths, 0)
        self._num_repeated = int(state["num_repeated"])
        self._excluded = frozenset(state["excluded"].tolist())
        for comparison_id, (_, _, answers) in zip(ids, saved, strict=True):
            given = {int(who): Answer(answer) for who, answer in answers.items()}
            self._queries[comparison_id].answers = given
        self._update_waiting()
