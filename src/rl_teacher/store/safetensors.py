"""Named arrays and JSON in one file, without pickle.

Source: https://huggingface.co/docs/safetensors, "Format".
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

HEADER_LENGTH_BYTES = 8
META_KEY = "meta"


def pack(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> bytes:
    """Arrays, of any shape 0-d included, and JSON as the bytes of a safetensors file."""
    # Note: not ascontiguousarray, which makes a 0-d array 1-d.
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(contiguous, metadata={META_KEY: json.dumps(meta)})


def unpack(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What `pack` was given.

    Raises:
        ValueError: these bytes are something else.
    """
    try:
        return load(content), read_meta(content)
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"not a file of ours: {error}") from error


def read_meta(content: bytes) -> dict[str, Any]:
    """The JSON alone, from the header."""
    length = int.from_bytes(content[:HEADER_LENGTH_BYTES], "little")
    header = json.loads(content[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
    return json.loads(header["__metadata__"][META_KEY])
