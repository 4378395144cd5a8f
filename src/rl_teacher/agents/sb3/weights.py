"""Parameters and optimisers of an algorithm as named arrays, without pickle."""

import json
import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from rl_teacher.agents.agent import check_shapes
from rl_teacher.common.state_dict import StateDict, array_to_text, nest, part_of, text_to_array

STRUCTURE = "shape"
PARAMETER_TREES = ("params", "target_params", "batch_stats", "target_batch_stats")
"""Parts of a training state of SBX that hold parameters; the others belong to its optimiser."""


def weights_of(algorithm: Any) -> StateDict:
    """Return the parameters of an algorithm and the states of its optimisers."""
    if is_sbx(algorithm):
        from jax.tree_util import keystr, tree_flatten_with_path  # noqa: PLC0415 - heavy

        leaves = {
            place: tree_flatten_with_path(tree)[0] for place, tree in _trees(algorithm).items()
        }
        return nest(
            {
                place: {keystr(path): np.asarray(leaf) for path, leaf in pairs}
                for place, pairs in leaves.items()
            }
        )
    parts = {name: flattened(tree) for name, tree in algorithm.get_parameters().items()}
    _, names = algorithm._get_torch_save_params()
    variables = {name: attrgetter(name)(algorithm) for name in names}
    parts["variables"] = {
        name: each.detach().cpu().numpy().copy() for name, each in variables.items()
    }
    return nest(parts)


def load_weights(algorithm: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Restore what `weights_of` returned."""
    if is_sbx(algorithm):
        import jax  # noqa: PLC0415 - heavy

        for place, tree in _trees(algorithm).items():
            saved = part_of(arrays, place)
            loaded = jax.tree_util.tree_map_with_path(
                lambda path, _, saved=saved: jax.numpy.asarray(saved[jax.tree_util.keystr(path)]),
                tree,
            )
            holder, _, name = place.partition(".")
            setattr(algorithm.policy if holder == "policy" else algorithm, name, loaded)
        return
    for name in algorithm.get_parameters():
        attrgetter(name)(algorithm).load_state_dict(unflattened(part_of(arrays, name)))
    for name, array in part_of(arrays, "variables").items():
        attrgetter(name)(algorithm).data.copy_(torch.from_numpy(np.array(array)))


def network_parameters(arrays: Mapping[str, np.ndarray]) -> StateDict:
    """Select the parameters of the networks from the result of `weights_of`."""
    selected: StateDict = {}
    for name, array in arrays.items():
        part, _, rest = name.partition("/")
        if part.endswith("_state"):
            # A key path of SBX, such as `.params['params']['Dense_0']['kernel']`.
            is_parameter = re.split(r"[.[]", rest.strip("."))[0] in PARAMETER_TREES
        else:
            is_parameter = part in ("policy", "variables") and rest != STRUCTURE
        if is_parameter:
            selected[name] = array
    return selected


def warm_start_weights(algorithm: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Take over the networks of another algorithm; keep the optimisers.

    Raises:
        BadConfig: its networks have other names or sizes.
    """
    own, given = weights_of(algorithm), network_parameters(arrays)
    check_shapes(
        network_parameters(own),
        given,
        "Use the algorithm and the policy_kwargs of the saved agent "
        "(--other.arguments \"policy_kwargs={'net_arch': [64, 64]}\"), and an environment with its "
        "observations and actions.",
    )
    load_weights(algorithm, own | given)


# --- torch ---


def flattened(tree: Any) -> StateDict:
    """Convert nested dictionaries and lists of tensors to arrays and their structure in JSON."""
    arrays: StateDict = {}
    shape = json.dumps(_extract_tensors(tree, "", arrays))
    return {**arrays, STRUCTURE: text_to_array(shape)}


def unflattened(arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the argument of `flattened`."""
    return _insert_tensors(json.loads(array_to_text(arrays[STRUCTURE])), arrays)


def _extract_tensors(tree: Any, name: str, arrays: StateDict) -> Any:
    if isinstance(tree, torch.Tensor):
        arrays[name] = tree.detach().cpu().numpy().copy()
        return {"tensor": name}
    if isinstance(tree, Mapping):
        items = [
            [key, _extract_tensors(each, f"{name}/{key}" if name else str(key), arrays)]
            for key, each in tree.items()
        ]
        return {"items": items}
    if isinstance(tree, list | tuple):
        return {"list": [_extract_tensors(e, f"{name}/{i}", arrays) for i, e in enumerate(tree)]}
    return {"value": tree}


def _insert_tensors(shape: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    ((kind, content),) = shape.items()
    if kind == "tensor":
        return torch.from_numpy(np.array(arrays[content]))
    if kind == "items":
        return {key: _insert_tensors(each, arrays) for key, each in content}
    if kind == "list":
        return [_insert_tensors(each, arrays) for each in content]
    return content


# --- SBX ---


def is_sbx(algorithm: Any) -> bool:
    """Return whether an algorithm belongs to SBX, which uses JAX."""
    return type(algorithm).__module__.partition(".")[0] == "sbx"


def _trees(algorithm: Any) -> dict[str, Any]:
    """Return training states and random keys by attribute."""
    import jax  # noqa: PLC0415 - heavy

    found = {}
    for place, holder in (("policy", algorithm.policy), ("algorithm", algorithm)):
        for name, each in vars(holder).items():
            if isinstance(each, jax.Array) or name.endswith("_state"):
                found[f"{place}.{name}"] = each
    return found
