"""State as named arrays: what a checkpoint holds, without pickle."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import UInt8

StateDict = dict[str, np.ndarray]


def nest(parts: Mapping[str, Mapping[str, np.ndarray]]) -> StateDict:
    """Join the states of several parts; names become `part/name`."""
    return {
        f"{part}/{name}": array for part, state in parts.items() for name, array in state.items()
    }


def part_of(arrays: Mapping[str, np.ndarray], part: str) -> StateDict:
    """The state of one part, its names without the leading `part/`."""
    prefix = f"{part}/"
    return {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}


def tree_to_arrays(tree: Any) -> StateDict:
    """The array leaves of a JAX tree, named by their place in it."""
    import jax  # noqa: PLC0415 - heavy

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in leaves
        if hasattr(leaf, "shape")
    }


def arrays_to_tree(like: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """A tree built as `like` is, with the saved leaves in their places.

    Raises:
        KeyError: one is not there.
        ValueError: one has another shape, as those of a network with other layers have.
    """
    import jax  # noqa: PLC0415 - heavy
    import jax.numpy as jnp  # noqa: PLC0415

    def saved(path: Any, leaf: Any) -> Any:
        if not hasattr(leaf, "shape"):
            return leaf
        name = jax.tree_util.keystr(path)
        if arrays[name].shape != leaf.shape:
            raise ValueError(f"{name} is {arrays[name].shape}, and {leaf.shape} is needed")
        return jnp.asarray(arrays[name])

    return jax.tree_util.tree_map_with_path(saved, like)


def text_to_array(text: str) -> UInt8[np.ndarray, " byte"]:
    """A text as the bytes of its UTF-8."""
    return np.frombuffer(text.encode(), np.uint8).copy()


def array_to_text(array: UInt8[np.ndarray, " byte"]) -> str:
    """The text that was made an array."""
    return array.tobytes().decode()


def rng_to_array(rng: np.random.Generator) -> UInt8[np.ndarray, " byte"]:
    """Where a random generator stands."""
    return text_to_array(json.dumps(rng.bit_generator.state))


def array_to_rng(rng: np.random.Generator, array: UInt8[np.ndarray, " byte"]) -> None:
    """Put a random generator of the same kind where another one stood."""
    rng.bit_generator.state = json.loads(array_to_text(array))
