"""Named arrays: the content of a checkpoint, without pickle."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

StateDict = dict[str, np.ndarray]


def nest(parts: Mapping[str, Mapping[str, np.ndarray]]) -> StateDict:
    """Join the state of several parts; prefix each name with `part/`."""
    return {
        f"{part}/{name}": array for part, state in parts.items() for name, array in state.items()
    }


def part_of(arrays: Mapping[str, np.ndarray], part: str) -> StateDict:
    """Return the state of one part, without the prefix `part/`."""
    prefix = f"{part}/"
    return {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}


def tree_to_arrays(tree: Any) -> StateDict:
    """Return the array leaves of a JAX tree, named by their key path."""
    import jax  # noqa: PLC0415 - heavy

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in leaves
        if hasattr(leaf, "shape")
    }


def arrays_to_tree(like: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Replace the array leaves of a tree by saved ones.

    Args:
        like: a tree of the same structure.
        arrays: leaves by key path, as `tree_to_arrays` returns them.

    Raises:
        KeyError: a leaf is missing.
        ValueError: a leaf has another shape, for example because layer sizes differ.
    """
    import jax  # noqa: PLC0415 - heavy
    import jax.numpy as jnp  # noqa: PLC0415

    def saved(path: Any, leaf: Any) -> Any:
        if not hasattr(leaf, "shape"):
            return leaf
        name = jax.tree_util.keystr(path)
        if arrays[name].shape != leaf.shape:
            raise ValueError(f"{name} has shape {arrays[name].shape}; {leaf.shape} is needed")
        return jnp.asarray(arrays[name], leaf.dtype)

    return jax.tree_util.tree_map_with_path(saved, like)


def text_to_array(text: str) -> UInt8[np.ndarray, " byte"]:
    """Encode a text as an array of UTF-8 bytes."""
    return np.frombuffer(text.encode(), np.uint8).copy()


def array_to_text(array: UInt8[np.ndarray, " byte"]) -> str:
    """Decode an array of UTF-8 bytes."""
    return array.tobytes().decode()


def lines_to_array(values: Iterable[Any]) -> UInt8[np.ndarray, " byte"]:
    """Encode values as lines of JSON; arrays of several processes can be concatenated."""
    return text_to_array("".join(f"{json.dumps(value)}\n" for value in values))


def array_to_lines(array: UInt8[np.ndarray, " byte"]) -> list[Any]:
    """Decode the values of `lines_to_array`."""
    return [json.loads(line) for line in array_to_text(array).splitlines()]


def concatenated(states: Sequence[Mapping[str, np.ndarray]]) -> StateDict:
    """Join states whose arrays have a row for each environment, or are lines of JSON."""
    return {name: np.concatenate([state[name] for state in states]) for name in states[0]}


def rng_to_array(rng: np.random.Generator) -> UInt8[np.ndarray, " byte"]:
    """Serialise the state of a random generator."""
    return text_to_array(json.dumps(rng.bit_generator.state))


def array_to_rng(rng: np.random.Generator, array: UInt8[np.ndarray, " byte"]) -> None:
    """Restore the state of a random generator of the same kind."""
    rng.bit_generator.state = json.loads(array_to_text(array))
