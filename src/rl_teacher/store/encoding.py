"""Encodings of arrays and JSON, without pickle.

Source: https://huggingface.co/docs/safetensors, "Format".
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

HEADER_LENGTH_BYTES = 8
META_KEY = "meta"


def pack(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> bytes:
    """Encode arrays of any shape and JSON metadata as a safetensors file."""
    # np.ascontiguousarray would turn a 0-d array into a 1-d array.
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(contiguous, metadata={META_KEY: json.dumps(meta)})


def unpack(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Decode the result of `pack`.

    Raises:
        ValueError: The content is not a safetensors file with metadata.
    """
    try:
        # safetensors.numpy.load drops the metadata, so it is read from the header.
        length = int.from_bytes(content[:HEADER_LENGTH_BYTES], "little")
        arrays = load(content)
        header = json.loads(content[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
        return arrays, json.loads(header["__metadata__"][META_KEY])
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"not a safetensors file of rl-teacher: {error}") from error


def jsonable(value: Any) -> Any:
    """Convert NumPy values at any depth to JSON types; NaN and infinity become None."""
    match value:
        case Mapping():
            return {str(key): jsonable(each) for key, each in value.items()}
        case list() | tuple():
            return [jsonable(each) for each in value]
        case np.ndarray() | np.generic():
            return jsonable(value.tolist())
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
