"""Safe reading and reproducible writing of `.npz` files: no pickle, bounded size."""

import io
import math
import zipfile
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.lib import format as npy

from rl_teacher.common.errors import BadInput

DTYPES = ("<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "|b1")
"""Allowed types of arrays."""
MAX_AXES = 10
MAX_HEADER_LENGTH = 10_000
DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every file in an archive, so that equal arrays result in equal bytes."""

Arrays = dict[str, np.ndarray]


def pack_npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Encode arrays as an `.npz` file."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, array in arrays.items():
            member = io.BytesIO()
            npy.write_array(member, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            add_member(file, f"{name}.npy", member.getvalue())
    return archive.getvalue()


def add_member(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a compressed file to an archive."""
    info = zipfile.ZipInfo(name, DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    # Unix permissions are the upper 16 bits.
    info.external_attr = 0o644 << 16
    file.writestr(info, content)


def read_npz(content: bytes, names: Collection[str], max_bytes: int) -> Arrays:
    """Decode arrays of an `.npz` file.

    Args:
        content: Content of the file.
        names: Names of the arrays; others are ignored.
        max_bytes: Maximum size of these arrays together.

    Raises:
        BadInput: The file is invalid, an array is missing, too large, or of a forbidden type.
    """
    with open_archive(content, "an .npz file of arrays") as file:
        sizes = {info.filename: info.file_size for info in file.infolist()}
        if len(sizes) != len(file.infolist()):
            raise BadInput("The archive has two files of one name; it was not written by a save.")
        wanted = {name: f"{name}.npy" for name in names}
        if missing := [name for name, member in wanted.items() if member not in sizes]:
            raise BadInput(
                f"The arrays {', '.join(missing)} are missing; there are "
                f"{', '.join(sorted(sizes)) or 'none'!s:.300}."
            )
        check_size(sum(sizes[member] for member in wanted.values()), max_bytes)
        return {name: read_member(file, member) for name, member in wanted.items()}


def open_archive(content: bytes, what: str) -> zipfile.ZipFile:
    """Open a zip archive.

    Raises:
        BadInput: The content is not an archive.
    """
    try:
        return zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        # Pickles begin with this byte since protocol 2.
        pickled = (
            " It looks like a pickle, which is never opened." if content[:1] == b"\x80" else ""
        )
        raise BadInput(f"This is not {what}: {error}.{pickled}") from error


def check_size(size_bytes: int, max_bytes: int) -> None:
    """Check a size before anything is allocated.

    Raises:
        BadInput: The size exceeds the limit.
    """
    if size_bytes > max_bytes:
        raise BadInput(
            f"The file would fill {size_bytes:,} bytes; {max_bytes:,} are allowed. If you trust "
            "it, allow more with max_bytes."
        )


def read_member(file: zipfile.ZipFile, member: str) -> np.ndarray:
    """Read one array, after checking that its header matches its size."""
    size_bytes = file.getinfo(member).file_size
    with file.open(member) as opened:
        shape, dtype = read_header(opened, member)
        expected = math.prod(shape) * dtype.itemsize
        if expected != size_bytes - opened.tell():
            raise BadInput(
                f"{member} declares {expected:,} bytes of {shape}, and has "
                f"{size_bytes - opened.tell():,}."
            )
        values = opened.read(expected)
    if len(values) != expected:
        raise BadInput(f"{member} is cut short: {len(values):,} of {expected:,} bytes.")
    return np.frombuffer(values, dtype).reshape(shape)


def read_header(opened: Any, member: str) -> tuple[tuple[int, ...], np.dtype]:
    """Read shape and type from the header of an array."""
    version = npy.read_magic(opened)
    if version not in ((1, 0), (2, 0)):
        raise BadInput(f"{member} is in version {version} of NumPy's format; 1 or 2 is needed.")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read(opened, max_header_size=MAX_HEADER_LENGTH)
    if dtype.hasobject or dtype.str not in DTYPES:
        raise BadInput(f"{member} is an array of {dtype}; one of {', '.join(DTYPES)} is needed.")
    if is_fortran or len(shape) > MAX_AXES or any(size < 0 for size in shape):
        raise BadInput(
            f"{member} has shape {shape}, or its axes in Fortran's order; C's is needed."
        )
    return shape, dtype
