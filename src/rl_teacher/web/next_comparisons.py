"""Claims of the next comparisons, of several labelers in one transaction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rl_teacher.common.errors import RlTeacherError
from rl_teacher.store.records import ClaimRequest, ExperimentView, Identity
from rl_teacher.store.store import Store
from rl_teacher.web.authentication import is_owner
from rl_teacher.web.experiment_views import ExperimentViews
from rl_teacher.web.schemas.labelling import NextComparisons
from rl_teacher.web.serializers import serialize_claim


@dataclass(frozen=True)
class NextRequest:
    """A labeler's request for the next comparisons.

    Attributes:
        experiment: Name of the experiment.
        identity: The labeler.
        exclude: Ids of comparisons that the client has.
        limit: Maximum number of comparisons.
    """

    experiment: str
    identity: Identity
    exclude: Sequence[int]
    limit: int

    @property
    def labeler(self) -> str:
        """Name of the labeler."""
        return self.identity.name


def next_comparisons(
    store: Store, experiments: ExperimentViews, requests: Sequence[NextRequest]
) -> list[NextComparisons | Exception]:
    """Claim comparisons for labelers.

    Returns:
        The response to each request, or the reason why there is none.
    """
    responses: dict[int, NextComparisons | Exception] = {}
    # Archived experiments are visible to owners only.
    keys = [(each.experiment, is_owner(each.identity)) for each in requests]
    for key in dict.fromkeys(keys):
        these = {place: each for place, each in enumerate(requests) if keys[place] == key}
        try:
            first = next(iter(these.values()))
            view = experiments.find_for(first.experiment, first.identity)
            found = list(next_of_experiment(store, experiments, view, list(these.values())))
        except Exception as error:  # other experiments are not affected
            responses |= dict.fromkeys(these, error)
            continue
        responses |= zip(these, found, strict=True)
    return [responses[place] for place in range(len(requests))]


def next_of_experiment(
    store: Store,
    experiments: ExperimentViews,
    view: ExperimentView,
    requests: Sequence[NextRequest],
) -> Iterator[NextComparisons | Exception]:
    """Claim comparisons of one experiment, and yield the response to each request.

    A comparison that cannot be shown, because its clips were hidden or damaged since the claim,
    fails the requests that it is for.
    """
    claimed = store.leases.claim_many(
        [ClaimRequest(view.id, each.labeler, each.limit, each.exclude) for each in requests]
    )
    progress_of = experiments.progress(view, {each.labeler for each in requests})
    for request, these in zip(requests, claimed, strict=True):
        progress = progress_of[request.labeler]
        try:
            comparisons = [serialize_claim(each, request.labeler) for each in these]
        except RlTeacherError as error:
            yield error
        else:
            yield NextComparisons(comparisons=comparisons, progress=progress)
