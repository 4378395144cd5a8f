"""Simulated study for the screenshots: labelers with different error rates."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import numpy as np

from rl_teacher.clips.answer import MIRRORED, Answer, is_swapped
from rl_teacher.store.database import default_url
from rl_teacher.store.media import SegmentFiles
from rl_teacher.store.records import (
    AssignmentPolicy,
    ComparisonDetails,
    ComparisonView,
    Control,
    NewLabel,
)
from rl_teacher.store.store import Store

LABELERS = {
    "Amara": (0.95, 1.0),
    "Bjarne": (0.9, 0.8),
    "Chloë": (0.85, 0.9),
    "Dmitri": (0.75, 0.6),
    "Zoë": (0.45, 0.5),
}
"""Each labeler's probability of a correct answer, and fraction of comparisons answered."""

EXCLUDED = "Zoë"
INVITED = ("Emeka", "Fatima", None)
NUM_GOLD = 6
REPEATS_EACH = 8
DURATION = timedelta(hours=3)
SEED = 4


class ScreenshotStudy:
    """Writer of the labels, invites and settings of a study of several hours."""

    def __init__(self, home: Path, name: str) -> None:
        self._rng = np.random.default_rng(SEED)
        self._now = datetime.now(UTC) - DURATION
        self._store = Store.open(default_url(home), now=lambda: self._now)
        self._segments = SegmentFiles(home / "segments")
        self._id = self._store.experiments.get(name).id
        self._name = name

    def fill(self) -> str:
        """Fill the store; return the path of an unused invite."""
        with self._store:
            return self._fill()

    def _fill(self) -> str:
        self._store.experiments.set_assignment(self._id, AssignmentPolicy(0.3, 3, 0.05, 0.05))
        for name in LABELERS:
            expires_at = self._now + timedelta(days=7)
            invite = self._store.access.invite(experiment=self._name, expires_at=expires_at)[1]
            self._store.access.accept_invite(invite, name)
        asked = list(self._comparisons())
        for each in asked[-NUM_GOLD:]:
            self._store.comparisons.set_gold(each.id, self._better(each))
        self._label(asked)
        self._store.labelers.set_excluded(EXCLUDED, is_excluded=True)
        self._store.experiments.set_control(self._id, Control(seconds_between=2.5))
        self._now = datetime.now(UTC)
        tokens = [self._invite(each) for each in INVITED]
        return f"/join?invite={tokens[-1]}"

    def _invite(self, name: str | None) -> str:
        expires_at = self._now + timedelta(days=7)
        return self._store.access.invite(name=name, experiment=self._name, expires_at=expires_at)[1]

    def _comparisons(self) -> Iterator[ComparisonDetails]:
        after = None
        while True:
            page = self._store.comparisons.page(self._id, after=after, limit=200)
            yield from page.rows
            if (after := page.next) is None:
                return

    def _label(self, asked: list[ComparisonDetails]) -> None:
        """Answer all comparisons in turn, then repeat some of them."""
        step = 0.9 * DURATION / (len(asked) * len(LABELERS))
        for each in reversed(asked):
            for name, (_, share) in LABELERS.items():
                self._now += step
                if self._rng.random() < share:
                    self._store.labels.add_many([self._label_of(name, each)])
        self._store.experiments.set_assignment(self._id, AssignmentPolicy(0.3, 3, repeats=1.0))
        for name in LABELERS:
            again = self._store.leases.claim(self._id, name, REPEATS_EACH)
            self._store.labels.add_many(
                [self._label_of(name, each.comparison, each.lease) for each in again]
            )
        self._store.experiments.set_assignment(self._id, AssignmentPolicy(0.3, 3, 0.05, 0.05))

    def _label_of(
        self, name: str, comparison: ComparisonView | ComparisonDetails, lease: UUID | None = None
    ) -> NewLabel:
        better = self._better(comparison)
        answer = better if self._rng.random() < LABELERS[name][0] else MIRRORED[better]
        if self._rng.random() < 0.06:
            answer = Answer.EQUAL if self._rng.random() < 0.7 else Answer.CANNOT_TELL
        return NewLabel(
            comparison.id,
            answer,
            name,
            is_swapped=is_swapped(comparison.id, name),
            response_ms=int(self._rng.lognormal(7.8, 0.5)),
            lease=lease,
        )

    def _better(self, comparison: ComparisonView | ComparisonDetails) -> Answer:
        left, right = (
            self._segments.load(side.content_hash).true_return
            for side in (comparison.left, comparison.right)
        )
        return Answer.LEFT if left > right else Answer.RIGHT
