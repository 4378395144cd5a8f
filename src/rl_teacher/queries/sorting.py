"""Sorting of clips: binary insertion into an order, and comparisons of neighbours in a ranking.

N: clips, numbered in order of arrival; G: groups of equal clips.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import numpy as np
from jaxtyping import Float64

from rl_teacher.clips.answer import MIRRORED, Answer

MAX_DISTANCE = 3
"""Places between two clips of a comparison of neighbours."""


class InsertionOrder:
    """Order of groups of equal clips, which clips enter by binary insertion.

    The state follows from the clips and from the list of answers alone, so that undoing or changing
    an answer is a replay. Answers count in the order of the list: one that contradicts earlier
    answers about a new clip is ignored. Answers between placed clips never move them.

    Attributes:
        num_clips: number of clips.
        groups: groups of equal clips, from the worst to the best.
        pending: clips that have no place yet, in order of arrival.
    """

    def __init__(self, num_clips: int = 0) -> None:
        self.pending: dict[int, None] = {}
        self.groups: list[list[int]] = []
        self._group: dict[int, list[int]] = {}
        self._answers: defaultdict[int, list[tuple[int, Answer]]] = defaultdict(list)
        self._hidden: set[int] = set()
        self.num_clips = 0
        for _ in range(num_clips):
            self.add_clip()

    def add_clip(self) -> int:
        """Add a clip without a place; the first clip founds the order. Return its number."""
        clip = self.num_clips
        self.num_clips += 1
        self.pending[clip] = None
        if not self.groups:
            self._found_group(clip, 0)
        return clip

    def add_answer(self, left: int, right: int, answer: Answer) -> None:
        """Add an answer, and place the clips whose places are known now."""
        self._answers[left].append((right, answer))
        self._answers[right].append((left, MIRRORED.get(answer, answer)))
        waiting = [left, right]
        while waiting:
            clip = waiting.pop()
            if clip in self.pending and self._place(clip):
                # Earlier answers about a placed clip say something about the places of others.
                waiting += [other for other, _ in self._answers[clip] if other in self.pending]

    def hide(self, clips: Collection[int]) -> None:
        """Choose clips for no further comparison; those without a place do not get one."""
        if not clips:
            return
        self._hidden.update(clips)
        for clip in list(self.pending):
            if clip in self._hidden:
                del self.pending[clip]
            else:
                # No further answer about it may be possible.
                self._place(clip)

    def bounds(self, clip: int) -> tuple[int, int, list[int] | None]:
        """Compute where a pending clip belongs, given the answers about it.

        Returns:
            The smallest and the largest number of groups below it, and the group that it equals.
        """
        low, high = 0, len(self.groups)
        for other, answer in self._answers[clip]:
            if answer is Answer.CANNOT_TELL or other not in self._group:
                continue
            place = self.groups.index(self._group[other])
            if not low <= place < high:
                continue
            if answer is Answer.EQUAL:
                return place, place, self.groups[place]
            low, high = (place + 1, high) if answer is Answer.LEFT else (low, place)
        return low, high, None

    def _place(self, clip: int) -> bool:
        """Place a pending clip if the answers suffice; return whether they do."""
        low, high, equal = self.bounds(clip)
        if equal is not None:
            self._join_group(clip, equal)
        elif low == high:
            self._found_group(clip, low)
        elif not any(self._askable(clip, place, ()) for place in range(low, high)):
            # Every comparison within the bounds has been answered by `cannot_tell`, or is with a
            # hidden clip.
            self._found_group(clip, (low + high) // 2)
        return clip not in self.pending

    def _found_group(self, clip: int, place: int) -> None:
        self.groups.insert(place, [])
        self._join_group(clip, self.groups[place])

    def _join_group(self, clip: int, group: list[int]) -> None:
        group.append(clip)
        self._group[clip] = group
        del self.pending[clip]

    def _askable(self, clip: int, place: int, busy: Collection[int]) -> list[int]:
        """Return the clips of a group that may be compared with a clip."""
        compared = self._hidden.union(other for other, _ in self._answers[clip])
        members = self.groups[place]
        return [each for each in members if each not in compared and each not in busy]

    # --- questions ---

    def pivot(self, clip: int, busy: Collection[int] = ()) -> int | None:
        """Choose the clip that a pending clip is compared with next.

        Args:
            clip: the pending clip.
            busy: clips in open comparisons, which are not chosen.

        Returns:
            The free clip next to the middle of the possible places, or None if those in their
            central half are busy. If none there can be compared, others are chosen.
        """
        low, high, _ = self.bounds(clip)
        # Group g is asked about to choose between the numbers g and g + 1 of groups below the clip.
        # In the central half, a comparison always excludes a good share of the places.
        first, middle, last = (
            min(math.floor(low + share * (high - low)), high - 1) for share in (0.25, 0.5, 0.75)
        )
        central = range(first, last + 1)
        if not any(self._askable(clip, place, ()) for place in central):
            central = range(low, high)
        for place in sorted(central, key=lambda place: abs(place - middle)):
            if free := self._askable(clip, place, busy):
                return free[0]
        return None

    def questions(self, busy: Collection[int] = ()) -> Iterator[tuple[int, int]]:
        """Yield comparisons of pending clips that can be open at the same time.

        Args:
            busy: clips in open comparisons.
        """
        taken = set(busy)
        for clip in [clip for clip in self.pending if clip not in taken]:
            pivot = self.pivot(clip, taken)
            if pivot is not None:
                taken |= {clip, pivot}
                yield clip, pivot


def neighbour_pairs(
    qualities: Float64[np.ndarray, " clip"],
    asked: Iterable[tuple[int, int]],
    busy: Collection[int],
    rng: np.random.Generator,
    max_distance: int = MAX_DISTANCE,
) -> Iterator[tuple[int, int]]:
    """Yield disjoint pairs of clips that are close to each other in the ranking.

    Pairs that were asked least come first, and among them those of clips that were asked about
    least.

    Args:
        qualities: [N] posterior means; the ranking sorts by them.
        asked: pairs of all comparisons so far, answered or not.
        busy: clips in open comparisons, which are left out.
        rng: breaks ties.
        max_distance: largest number of places between the clips of a pair.
    """
    num_clips = len(qualities)
    ranking = np.lexsort((rng.random(num_clips), qualities))
    pairs = np.concatenate(
        [
            np.stack([ranking[:-distance], ranking[distance:]], axis=1)
            for distance in range(1, min(max_distance, num_clips - 1) + 1)
        ]
        or [np.empty((0, 2), np.int64)]
    )
    before = np.array(list(asked), np.int64).reshape(-1, 2)
    keys, num_by_key = np.unique(_keys(before, num_clips), return_counts=True)
    num_by_key, keys = np.append(num_by_key, 0), np.append(keys, num_clips**2)
    place = np.searchsorted(keys, _keys(pairs, num_clips))
    num_asked = np.where(keys[place] == _keys(pairs, num_clips), num_by_key[place], 0)
    num_by_clip = np.bincount(before.ravel(), minlength=num_clips)[pairs].sum(axis=1)
    taken = set(busy)
    for chosen in np.lexsort((rng.random(len(pairs)), num_by_clip, num_asked)):
        one, other = pairs[chosen].tolist()
        if one not in taken and other not in taken:
            taken |= {one, other}
            yield one, other


def _keys(pairs: np.ndarray, num_clips: int) -> np.ndarray:
    """Compute a number for each unordered pair."""
    return pairs.min(axis=1) * num_clips + pairs.max(axis=1)
