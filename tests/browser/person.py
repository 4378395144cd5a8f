"""Simulated person who labels on the page."""

from rl_teacher.clips.answer import MIRRORED, Answer
from rl_teacher.store.media import SegmentFiles
from tests.browser.experiments import in_shown_order


class Person:
    """Person who prefers the clip with the higher true return.

    Attributes:
        log: Comparison ids with the answers given, None for a withdrawal.
    """

    def __init__(self, labelling, home, store):
        self.labelling = labelling
        self._store, self._segments = store, SegmentFiles(home / "segments")
        self.log = []

    @property
    def num_answered(self):
        return len({comparison_id for comparison_id, _ in self.log})

    def answer_until(self, num_answered):
        while self.num_answered < num_answered:
            self.answer()

    def answer(self):
        comparison_id = self.labelling.shown_comparison()
        self._answer(comparison_id, self.preferred(comparison_id))

    def answer_wrong_and_undo(self):
        comparison_id = self.labelling.shown_comparison()
        self._answer(comparison_id, MIRRORED[self.preferred(comparison_id)])
        self.labelling.press("z")
        self.log.append((comparison_id, None))
        self.labelling.wait_for_comparison(comparison_id)
        self.answer()

    def answer_prefetched(self):
        """Answer all prefetched comparisons while offline."""
        while self.labelling.hook("comparisonId") is not None:
            self.answer()

    def reload(self):
        self.labelling.page.reload()
        comparison_id = self.labelling.shown_comparison()
        stored = self._store.comparisons.get(comparison_id)
        assert comparison_id not in dict(self.log), (
            f"{comparison_id} is asked again; given: {self.log}; {stored}"
        )

    def _answer(self, comparison_id, answer):
        assert self.labelling.answer(answer) == comparison_id
        self.log.append((comparison_id, answer))

    def preferred(self, comparison_id):
        comparison = self._store.comparisons.get(comparison_id)
        left, right = in_shown_order(comparison_id, (comparison.left, comparison.right))
        left_return, right_return = (
            self._segments.load(side.content_hash).true_return for side in (left, right)
        )
        return Answer.LEFT if left_return > right_return else Answer.RIGHT
