"""Parameters and optimisers of an algorithm as named arrays, without pickle."""

import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from rl_teacher.common.errors import BadConfig
from rl_teacher.common.state_dict import StateDict, array_to_text, nest, part_of, text_to_array

SHAPE_OF_TREE = "shape"
LEARNED = ("params", "target_params", "batch_stats", "target_batch_stats")
"""What is learned in a state of SBX; the rest is its optimiser's."""


def weights_of(algorithm: Any) -> StateDict:
    """Everything that training changes in an algorithm's networks and optimisers."""
    if is_sbx(algorithm):
        return nest({name: _leaves(tree) for name, tree in _trees(algorithm).items()})
    parts = {name: flattened(tree) for name, tree in algorithm.get_parameters().items()}
    return nest({**parts, "variables": _variables(algorithm)})


def load_weights(algorithm: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Put back what `weights_of` said."""
    if is_sbx(algorithm):
        _load_trees(algorithm, arrays)
        return
    for name in algorithm.get_parameters():
        attrgetter(name)(algorithm).load_state_dict(unflattened(part_of(arrays, name)))
    _load_variables(algorithm, part_of(arrays, "variables"))


def learned(arrays: Mapping[str, np.ndarray]) -> StateDict:
    """Of what `weights_of` says, the networks alone."""
    return {name: array for name, array in arrays.items() if _is_learned(name)}


def begin_with_weights(algorithm: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Take over another algorithm's networks; optimisers stay as they are.

    Raises:
        BadConfig: it has other networks, or networks of other sizes.
    """
    own, given = weights_of(algorithm), learned(arrays)
    check_same(learned(own), given)
    load_weights(algorithm, own | given)


def check_same(own: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray]) -> None:
    """Refuse networks that are not like one's own.

    Raises:
        BadConfig: says which differ.
    """
    wrong = [
        f"{name} is {given[name].shape if name in given else 'not there'}, and not "
        f"{own[name].shape if name in own else 'there'} here"
        for name in sorted({*own, *given})
        if name not in own or name not in given or own[name].shape != given[name].shape
    ]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise BadConfig(
            f"The agent to begin with has other networks: {'; '.join(wrong[:3])}{more}. Give the "
            "same algorithm and the policy_kwargs that it had "
            "(--other.arguments \"policy_kwargs={'net_arch': [64, 64]}\"), and an environment with "
            "its observations and actions."
        )


def _is_learned(name: str) -> bool:
    part, _, rest = name.partition("/")
    if part.endswith("_state"):
        return rest.strip(".").partition("[")[0].partition(".")[0] in LEARNED
    return part in ("policy", "variables") and rest != SHAPE_OF_TREE


# --- torch ---


def flattened(tree: Any) -> StateDict:
    """The tensors of nested dictionaries and lists as arrays, and what holds them as JSON."""
    arrays: StateDict = {}
    shape = json.dumps(_without_tensors(tree, "", arrays))
    return {**arrays, SHAPE_OF_TREE: text_to_array(shape)}


def unflattened(arrays: Mapping[str, np.ndarray]) -> Any:
    """What `flattened` was given."""
    return _with_tensors(json.loads(array_to_text(arrays[SHAPE_OF_TREE])), arrays)


def _without_tensors(tree: Any, name: str, arrays: StateDict) -> Any:
    if isinstance(tree, torch.Tensor):
        arrays[name] = tree.detach().cpu().numpy().copy()
        return {"tensor": name}
    if isinstance(tree, Mapping):
        items = [
            [key, _without_tensors(each, f"{name}/{key}" if name else str(key), arrays)]
            for key, each in tree.items()
        ]
        return {"items": items}
    if isinstance(tree, list | tuple):
        return {"list": [_without_tensors(e, f"{name}/{i}", arrays) for i, e in enumerate(tree)]}
    return {"value": tree}


def _with_tensors(shape: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    ((kind, content),) = shape.items()
    if kind == "tensor":
        return torch.from_numpy(np.array(arrays[content]))
    if kind == "items":
        return {key: _with_tensors(each, arrays) for key, each in content}
    if kind == "list":
        return [_with_tensors(each, arrays) for each in content]
    return content


def _variables(algorithm: Any) -> StateDict:
    _, names = algorithm._get_torch_save_params()
    return {name: attrgetter(name)(algorithm).detach().cpu().numpy().copy() for name in names}


def _load_variables(algorithm: Any, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        attrgetter(name)(algorithm).data.copy_(torch.from_numpy(np.array(array)))


# --- SBX ---


def is_sbx(algorithm: Any) -> bool:
    """Whether an algorithm learns with JAX."""
    return type(algorithm).__module__.partition(".")[0] == "sbx"


def _trees(algorithm: Any) -> dict[str, Any]:
    """States of networks and random keys, by where they are."""
    import jax  # noqa: PLC0415 - heavy

    found = {}
    for place, holder in (("policy", algorithm.policy), ("algorithm", algorithm)):
        for name, each in vars(holder).items():
            if isinstance(each, jax.Array) or name.endswith("_state"):
                found[f"{place}.{name}"] = each
    return found


def _leaves(tree: Any) -> StateDict:
    import jax  # noqa: PLC0415

    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in paths}


def _load_trees(algorithm: Any, arrays: Mapping[str, np.ndarray]) -> None:
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415

    for place, tree in _trees(algorithm).items():
        saved = part_of(arrays, place)
        loaded = jax.tree_util.tree_map_with_path(
            lambda path, _, saved=saved: jnp.asarray(saved[jax.tree_util.keystr(path)]), tree
        )
        holder, _, name = place.partition(".")
        setattr(algorithm.policy if holder == "policy" else algorithm, name, loaded)
