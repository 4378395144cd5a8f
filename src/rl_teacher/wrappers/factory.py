"""Construction of a wrapper's reward learner from its settings."""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rl_teacher.common.errors import BadConfig, BadInput
from rl_teacher.datasets import load
from rl_teacher.datasets.given_labels import Labelled
from rl_teacher.datasets.import_export import SPACES
from rl_teacher.plan import LearningPlan
from rl_teacher.predictor.ensemble import RewardPredictor
from rl_teacher.predictor.inputs import InputSpace
from rl_teacher.runs.folder import shortened_name
from rl_teacher.runs.opening import ExperimentSpec
from rl_teacher.store.media import slug
from rl_teacher.wrappers.environments import WrappedEnvs
from rl_teacher.wrappers.settings import WrapperPlan


def generated_name(env_id: str) -> str:
    """Return a default name: the environment, the time and four random characters."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H.%M.%S")
    return shortened_name(slug(env_id), f" {now} {secrets.token_hex(2)}")


def experiment_spec(
    envs: WrappedEnvs, plan: WrapperPlan, learning: LearningPlan, given: Sequence[Labelled]
) -> ExperimentSpec:
    """Return the identity of a wrapper's experiment: what must be unchanged to resume it.

    Args:
        envs: the environments.
        plan: plan of the wrapper.
        learning: its reward predictor.
        given: initial labels, which the experiment does not store.
    """
    env_id, labels = envs.env_info.id, learning.labels
    config = {
        "env_id": env_id,
        "num_envs": envs.num_envs,
        SPACES: envs.input_space.to_json(),
        "segment_steps": learning.segment_steps,
        "teacher": "human" if labels.is_person else labels.teacher_name,
        "teacher_strength": labels.teacher_strength,
        "seed": learning.seed,
        "given_labels": {"number": len(given), "digest": digest_of(given)},
        "shows_ends": learning.shows_ends,
        "is_warm": plan.predictor is not None,
        "reward": asdict(learning.predictor),
    }
    return ExperimentSpec(
        name=plan.name or generated_name(env_id),
        env_info=envs.env_info,
        config=config,
        asks_a_person=labels.is_person,
        max_labels=labels.total,
        instructions=plan.instructions,
    )


def pretrained_predictor(plan: WrapperPlan, space: InputSpace) -> RewardPredictor | None:
    """Return the saved predictor if it has the required input space.

    Raises:
        BadConfig: the predictor has another input space.
    """
    predictor = plan.predictor
    if predictor is not None and predictor.space != space:
        raise BadConfig(
            f"The predictor was made for {predictor.space.description}, but this environment has "
            f"{space.description}. Use one that was fitted in this environment, with the same "
            "observation_transform."
        )
    return predictor


def given_labels(
    labels: str | Path | Iterable[Labelled] | None, num_steps: int
) -> tuple[list[Labelled], list[Labelled]]:
    """Load initial labels.

    Args:
        labels: path of a data set, or labelled comparisons.
        num_steps: L, the maximum length of a segment.

    Returns:
        The labels to fit to, and the held-out ones.

    Raises:
        BadInput: segments are longer than L.
    """
    if labels is None:
        return [], []
    training: list[Labelled] = []
    held_out: list[Labelled] = []
    for each in load(labels) if isinstance(labels, str | Path) else labels:
        (held_out if getattr(each, "is_held_out", False) else training).append(each)
    longest = max((len(side) for each in training for side in (each.left, each.right)), default=0)
    if longest > num_steps:
        raise BadInput(
            f"The given labels compare segments of up to {longest} steps, but segments have "
            f"{num_steps} here. Give segment_length={longest}."
        )
    return training, held_out


def digest_of(comparisons: Iterable[Labelled]) -> str:
    """Return a digest of labels and their clips, in order."""
    digest = hashlib.sha256()
    for each in comparisons:
        facts = each.left.content_hash, each.right.content_hash, float(each.target)
        digest.update(f"{facts}\n".encode())
    return digest.hexdigest()


def clips_of(comparisons: Iterable[Labelled]) -> set[str]:
    """Return the content hashes of the clips of comparisons."""
    return {side.content_hash for each in comparisons for side in (each.left, each.right)}
