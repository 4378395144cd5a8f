"""The questions of one experiment: what was asked, and what has been answered."""

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import CorruptCheckpoint
from rl_teacher.common.state_dict import StateDict, array_to_text, text_to_array
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import ComparisonFilter, NewLabel, StoredLabel
from rl_teacher.store.store import Store
from rl_teacher.teachers.teacher import Circumstances, Teacher, rng_of

Pair = tuple[Segment, Segment]

LIBRARY_SIZE = 100
"""Segments of other experiments that are looked at, at most."""
MOST_GOLD = 1_000
"""Comparisons with a known answer that labelers are measured by, at most."""


@dataclass(frozen=True)
class Shelf:
    """Where an experiment's questions and answers are kept.

    Attributes:
        store: comparisons and labels.
        experiment_id: whose.
        segments: the arrays of what was compared.
        show: makes the clips of segments that somebody is going to see; None where nobody is.
        shows_others: whether it can make clips of what another experiment has lived. A video needs
            to know how the episode went, which that experiment alone remembers.
    """

    store: Store
    experiment_id: int
    segments: SegmentFiles
    show: Callable[[Iterable[Segment]], None] | None = None
    shows_others: bool = True


def library_of(shelf: Shelf, env_id: str, num_steps: int) -> list[Segment]:
    """Segments that other experiments of an environment asked about; the newest, at most some."""
    own = {
        content_hash
        for asked in shelf.store.comparisons.asked(shelf.experiment_id)
        for content_hash in (asked.left_hash, asked.right_hash)
    }
    there = shelf.store.clips.shared(env_id, num_steps, only_rendered=not shelf.shows_others)
    shared = [each for each in there if each not in own]
    library = []
    for content_hash in shared[-LIBRARY_SIZE:]:
        # Note: another machine may have made it, and kept the segment to itself.
        with contextlib.suppress(CorruptCheckpoint):
            library.append(shelf.segments.load(content_hash))
    return library


@dataclass(frozen=True)
class Respondent:
    """Who answers.

    Attributes:
        teacher: answers at once, or says None: somebody will, through the store.
        labeler: what the store calls the teacher.
        seed: of the teacher's randomness.
    """

    teacher: Teacher
    labeler: str
    seed: int


@dataclass(frozen=True)
class RecentEpisodes:
    """The latest finished episodes; NaN before the first.

    Attributes:
        mean_return: true return.
        mean_steps: length.
    """

    mean_return: float
    mean_steps: float


SOMEBODY = 0
"""In the place of a labeler, where an older checkpoint does not say who had answered."""

Answers = Mapping[int, Answer]
"""What each labeler says, by their id in the store."""


@dataclass
class Question:
    """A comparison that was asked.

    Attributes:
        id: in the store.
        left: content hash of the left segment.
        right: of the right one.
        said: each labeler's answer, as far as it was taken in; excluded labelers' as well.
    """

    id: int
    left: str
    right: str
    said: dict[int, Answer] = field(default_factory=dict)

    def answers(self, excluded: Collection[int]) -> dict[int, Answer]:
        """The answers that count, in the labelers' order."""
        return {who: self.said[who] for who in sorted(self.said) if who not in excluded}


@dataclass(frozen=True)
class Taken:
    """Answers that have come.

    Attributes:
        new: questions that had none before, in the order answered.
        more: questions that others had answered before.
        has_revised: whether an answer that had been taken in was changed, or taken back, or does
            not count any more.
    """

    new: list[Question]
    more: list[Question]
    has_revised: bool


class QueryQueue:
    """Asks through the store, and takes in what was answered there.

    A synthetic teacher's answers go the same way as a person's: into the store first.
    """

    def __init__(self, shelf: Shelf, respondent: Respondent) -> None:
        self._shelf = shelf
        self._respondent = respondent
        self._questions: dict[int, Question] = {}
        self._waiting: dict[int, Question] = {}
        self._excluded: frozenset[int] = frozenset()
        self._num_repeated = 0
        self._newest_label_id = 0

    @property
    def num_asked(self) -> int:
        """Comparisons asked so far; one that came up twice counts twice."""
        return len(self._questions) + self._num_repeated

    @property
    def num_waiting(self) -> int:
        """Comparisons without an answer."""
        return len(self._waiting)

    @property
    def num_answered(self) -> int:
        """Comparisons whose answer was taken in."""
        return self.num_asked - len(self._waiting)

    def ask(self, pairs: Sequence[Pair], step: int, recent: RecentEpisodes) -> None:
        """Put questions into the store, and the answers of a teacher who answers at once.

        Note: segments are on disk before the question that names them is in the store. A question
        that was asked before, by a run that was killed, keeps the answer it has.
        """
        if not pairs:
            return
        for segment in {s.content_hash: s for pair in pairs for s in pair}.values():
            self._shelf.segments.save(segment)
        hashes = [(left.content_hash, right.content_hash) for left, right in pairs]
        lengths = {s.content_hash: len(s) for pair in pairs for s in pair}
        ids = self._enter(hashes, pairs[0][0].env_id, lengths, step)
        known = self._shelf.store.labels.answers(ids)
        if known:  # their labels are older than the newest that was read: read them once more
            self._newest_label_id = 0
        unanswered = [each for each in zip(ids, pairs, strict=True) if each[0] not in known]
        labels = list(self._answers(unanswered, recent))
        self._shelf.store.labels.add_many(labels)
        answered_at_once = {label.comparison_id for label in labels}
        self._show([pair for i, pair in unanswered if i not in answered_at_once])

    def adopt(self) -> None:
        """Take over what earlier runs asked that no checkpoint knows of.

        A person's run does not ask the same again after a crash, so the answers to what it had
        asked would be lost. What nobody answered and cannot be shown is left alone.
        """
        for asked in self._shelf.store.comparisons.asked(self._shelf.experiment_id):
            if asked.id not in self._questions and (asked.is_answered or asked.is_rendered):
                question = Question(asked.id, asked.left_hash, asked.right_hash)
                self._questions[asked.id] = self._waiting[asked.id] = question
        self._newest_label_id = 0

    def _show(self, pairs: Iterable[Pair]) -> None:
        """Have clips made of what somebody else will answer; till then nobody is asked."""
        if self._shelf.show is not None:
            self._shelf.show(segment for pair in pairs for segment in pair)

    def _enter(
        self,
        hashes: Sequence[tuple[str, str]],
        env_id: str,
        num_steps: Mapping[str, int],
        step: int,
    ) -> list[int]:
        shelf = self._shelf
        ids = shelf.store.comparisons.add(shelf.experiment_id, hashes, env_id, num_steps, step)
        for comparison_id, pair in zip(ids, hashes, strict=True):
            if comparison_id in self._questions:
                self._num_repeated += 1
                continue
            question = Question(comparison_id, *pair)
            self._questions[comparison_id] = self._waiting[comparison_id] = question
        return ids

    def _answers(
        self, unanswered: Sequence[tuple[int, Pair]], recent: RecentEpisodes
    ) -> Iterator[NewLabel]:
        respondent = self._respondent
        for comparison_id, (left, right) in unanswered:
            rng = rng_of(respondent.seed, left, right)
            circumstances = Circumstances(recent.mean_return, recent.mean_steps, rng)
            answer = respondent.teacher(left, right, circumstances)
            if answer is not None:
                yield NewLabel(comparison_id, answer, respondent.labeler)

    def take_answers(self) -> Taken:
        """What was answered since this was last called.

        An answer that was taken back is gone, and its question waits again if it was the only one.
        """
        before = self._exclude(self._shelf.store.labelers.excluded_ids())
        shelf = self._shelf
        for label in shelf.store.labels.since(shelf.experiment_id, self._newest_label_id):
            self._newest_label_id = max(self._newest_label_id, label.id)
            question = self._questions.get(label.comparison_id)
            if question is not None:
                before.setdefault(question.id, self.answers_to(question))
                _take_in(question, label)
        return self._compared_with(before)

    def _exclude(self, excluded: frozenset[int]) -> dict[int, Answers]:
        """Let some labelers' answers count no more, or again; what counted of those touched."""
        changed = excluded ^ self._excluded
        before = {
            question.id: self.answers_to(question)
            for question in (self._questions.values() if changed else ())
            if changed & question.said.keys()
        }
        self._excluded = excluded
        return before

    def _compared_with(self, before: Mapping[int, Answers]) -> Taken:
        """What has become of questions whose answers may have changed."""
        new, more, has_revised = [], [], False
        for i, answers_before in before.items():
            question = self._questions[i]
            answers = self.answers_to(question)
            known = _attributed(answers_before, answers)
            if answers == known:
                continue
            self._wait_for(question, is_waiting=not answers)
            if not known.items() <= answers.items():
                has_revised = True
            elif known:
                more.append(question)
            else:
                new.append(question)
        return Taken(new, more, has_revised)

    def _wait_for(self, question: Question, *, is_waiting: bool) -> None:
        self._waiting.pop(question.id, None)
        if is_waiting:
            self._waiting[question.id] = question

    def answers_to(self, question: Question) -> Answers:
        """What labelers say of a question; those who are excluded say nothing."""
        return question.answers(self._excluded)

    def gold(self) -> dict[int, Answer]:
        """Known answers to questions, by which labelers can be measured; the newest, at most some.

        Nothing is learned from them but who is right how often: a comparison teaches what labelers
        say of it.
        """
        shelf = self._shelf
        is_gold = ComparisonFilter(is_gold=True)
        known = shelf.store.comparisons.page(shelf.experiment_id, is_gold, limit=MOST_GOLD).rows
        return {each.id: each.gold for each in known if each.gold is not None}

    def asked(self) -> list[Question]:
        """Every question, in the order asked."""
        return list(self._questions.values())

    def answered(self) -> list[Question]:
        """Every question that has an answer, in the order asked."""
        return [question for question in self._questions.values() if self.answers_to(question)]

    def segment(self, content_hash: str) -> Segment:
        """One of the segments that were asked about."""
        return self._shelf.segments.load(content_hash)

    def state(self) -> StateDict:
        """Which questions were asked, and the answers taken in; segments stay on disk."""
        questions = [[q.left, q.right, q.said] for q in self._questions.values()]
        return {
            "questions": text_to_array(json.dumps(questions)),
            "excluded": np.asarray(sorted(self._excluded), np.int64),
            "num_repeated": np.asarray(self._num_repeated),
        }

    def load_state(self, state: Mapping[str, np.ndarray], env_id: str) -> None:
        """Go on from a saved state.

        Note: found again by what was compared, not by the store's ids, so that a database that was
        put back from a backup serves as well.
        """
        saved = json.loads(array_to_text(state["questions"]))
        hashes = [(left, right) for left, right, _ in saved]
        lengths = {each: len(self.segment(each)) for pair in hashes for each in pair}
        ids = self._enter(hashes, env_id, lengths, 0)
        self._num_repeated = int(state["num_repeated"])
        self._excluded = frozenset(state["excluded"].tolist() if "excluded" in state else ())
        for comparison_id, (_, _, said) in zip(ids, saved, strict=True):
            question = self._questions[comparison_id]
            question.said = _said(said)
            self._wait_for(question, is_waiting=not self.answers_to(question))
        if self._shelf.show is not None:
            waiting = self._waiting.values()
            self._show([(self.segment(each.left), self.segment(each.right)) for each in waiting])


def _take_in(question: Question, label: StoredLabel) -> None:
    """The newest label of a labeler is what they say."""
    question.said.pop(SOMEBODY, None)
    if label.answer is None:
        question.said.pop(label.labeler_id, None)
    else:
        question.said[label.labeler_id] = label.answer


def _attributed(before: Answers, after: Answers) -> Answers:
    """Answers of which an older checkpoint did not keep who gave them, now that this is known."""
    if SOMEBODY not in before:
        return before
    agreeing = [who for who, answer in after.items() if answer is before[SOMEBODY]]
    return dict.fromkeys(agreeing[:1], before[SOMEBODY]) or before


def _said(saved: Mapping[str, str] | str | None) -> dict[int, Answer]:
    """Answers as a checkpoint has them; an older one has a single answer, or none."""
    if saved is None:
        return {}
    if isinstance(saved, str):
        return {SOMEBODY: Answer(saved)}
    return {int(who): Answer(answer) for who, answer in saved.items()}
