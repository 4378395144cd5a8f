"""The questions of one experiment: what was asked, and what has been answered."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.errors import CorruptCheckpoint
from rl_teacher.named_arrays import NamedArrays, array_to_text, text_to_array
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.store import NewLabel, Store
from rl_teacher.teachers.teacher import Circumstances, Teacher, rng_of

Pair = tuple[Segment, Segment]

LIBRARY_SIZE = 100
"""Segments of other experiments that are looked at, at most."""


@dataclass(frozen=True)
class Shelf:
    """Where an experiment's questions and answers are kept.

    Attributes:
        store: comparisons and labels.
        experiment_id: whose.
        segments: the arrays of what was compared.
        show: makes the clips of segments that somebody is going to see; None where nobody is.
    """

    store: Store
    experiment_id: int
    segments: SegmentFiles
    show: Callable[[Iterable[Segment]], None] | None = None


def library_of(shelf: Shelf, env_id: str, num_steps: int) -> list[Segment]:
    """Segments that other experiments of an environment asked about; the newest, at most some."""
    own = {
        content_hash
        for asked in shelf.store.asked_comparisons(shelf.experiment_id)
        for content_hash in (asked.left_hash, asked.right_hash)
    }
    shared = [each for each in shelf.store.shared_clips(env_id, num_steps) if each not in own]
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


@dataclass
class Question:
    """A comparison that was asked.

    Attributes:
        id: in the store.
        left: content hash of the left segment.
        right: of the right one.
        answer: what was said, as far as it was taken in; None before, or when it was taken back.
        label_id: of the label that said so, in the store.
    """

    id: int
    left: str
    right: str
    answer: Answer | None = None
    label_id: int = 0


@dataclass(frozen=True)
class Taken:
    """Answers that have come.

    Attributes:
        new: questions that had none before, in the order answered.
        has_revised: whether an answer that had been taken in was changed, or taken back.
    """

    new: list[Question]
    has_revised: bool


class Questionnaire:
    """Asks through the store, and takes in what was answered there.

    A synthetic teacher's answers go the same way as a person's: into the store first.
    """

    def __init__(self, shelf: Shelf, respondent: Respondent) -> None:
        self._shelf = shelf
        self._respondent = respondent
        self._questions: dict[int, Question] = {}
        self._waiting: dict[int, Question] = {}
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
        known = self._shelf.store.answers(ids)
        if known:  # their labels are older than the newest that was read: read them once more
            self._newest_label_id = 0
        unanswered = [each for each in zip(ids, pairs, strict=True) if each[0] not in known]
        labels = list(self._answers(unanswered, recent))
        self._shelf.store.answer_many(labels)
        answered_at_once = {label.comparison_id for label in labels}
        self._show([pair for i, pair in unanswered if i not in answered_at_once])

    def adopt(self) -> None:
        """Take over what earlier runs asked that no checkpoint knows of.

        A person's run does not ask the same again after a crash, so the answers to what it had
        asked would be lost. What nobody answered and cannot be shown is left alone.
        """
        for asked in self._shelf.store.asked_comparisons(self._shelf.experiment_id):
            if asked.id not in self._questions and (asked.is_answered or asked.is_shown):
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
        ids = shelf.store.ask(shelf.experiment_id, hashes, env_id, num_steps, step)
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

        An answer that was taken back is gone, and its question waits again.
        """
        before: dict[int, Answer | None] = {}
        shelf = self._shelf
        for label in shelf.store.labels_since(shelf.experiment_id, self._newest_label_id):
            self._newest_label_id = max(self._newest_label_id, label.id)
            question = self._questions.get(label.comparison_id)
            if question is not None and label.id > question.label_id:
                before.setdefault(question.id, question.answer)
                question.label_id, question.answer = label.id, label.answer
        changed = [i for i, answer in before.items() if answer != self._questions[i].answer]
        for i in changed:
            self._waiting.pop(i, None)
            if self._questions[i].answer is None:
                self._waiting[i] = self._questions[i]
        new = [self._questions[i] for i in changed if before[i] is None]
        return Taken(new, has_revised=len(new) < len(changed))

    def answered(self) -> list[Question]:
        """Every question that has an answer, in the order asked."""
        return [question for question in self._questions.values() if question.answer is not None]

    def segment(self, content_hash: str) -> Segment:
        """One of the segments that were asked about."""
        return self._shelf.segments.load(content_hash)

    def state(self) -> NamedArrays:
        """Which questions were asked, and the answers taken in; segments stay on disk."""
        questions = [[q.left, q.right, q.answer] for q in self._questions.values()]
        return {
            "questions": text_to_array(json.dumps(questions)),
            "num_repeated": np.asarray(self._num_repeated),
        }

    def load_state(self, state: Mapping[str, np.ndarray], env_id: str) -> list[Question]:
        """Go on from a saved state; the questions that had been answered by then.

        Note: found again by what was compared, not by the store's ids, so that a database that was
        put back from a backup serves as well.
        """
        saved = json.loads(array_to_text(state["questions"]))
        hashes = [(left, right) for left, right, _ in saved]
        lengths = {each: len(self.segment(each)) for pair in hashes for each in pair}
        ids = self._enter(hashes, env_id, lengths, 0)
        self._num_repeated = int(state["num_repeated"])
        for comparison_id, (_, _, answer) in zip(ids, saved, strict=True):
            if answer is not None:
                self._waiting.pop(comparison_id).answer = Answer(answer)
        if self._shelf.show is not None:
            waiting = self._waiting.values()
            self._show([(self.segment(each.left), self.segment(each.right)) for each in waiting])
        return self.answered()
