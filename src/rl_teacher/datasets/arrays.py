"""Safe reading and reproducible writing of `.npz` files: no pickle, bounded size."""

import io
import math
import zipfile
from collections.abc import Collection, Mapping

import numpy as np
from numpy.lib import format as npy

from rl_teacher.common.errors import BadInput
from rl_teacher.common.files import MAX_RATIO

DTYPES = ("<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "|b1")
"""Allowed types of arrays."""
MAX_AXES = 10
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
        # Very uniform arrays would be taken for a bomb.
        padding = sum(each.nbytes for each in arrays.values()) // MAX_RATIO - archive.tell()
        file.writestr(zipfile.ZipInfo("padding", DATE), bytes(max(0, padding)))
    return archive.getvalue()


def add_member(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file to an archive, compressed once."""
    info = zipfile.ZipInfo(name, DATE)
    info.compress_type = zipfile.ZIP_STORED if name.endswith(".npz") else zipfile.ZIP_DEFLATED
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
        if missing := [name for name in names if f"{name}.npy" not in sizes]:
            raise BadInput(f"The arrays {', '.join(missing)} are missing.")
        check_size(sum(sizes[f"{name}.npy"] for name in names), max_bytes)
        return {name: read_array(file, f"{name}.npy") for name in names}


def read_array(file: zipfile.ZipFile, member: str) -> np.ndarray:
    """Read one array, if the shape that it declares fits the size of the file."""
    with file.open(member) as opened:
        is_first_version = npy.read_magic(opened) == (1, 0)
        read_header = npy.read_array_header_1_0 if is_first_version else npy.read_array_header_2_0
        shape, _, dtype = read_header(opened)
    if math.prod(shape) * dtype.itemsize > file.getinfo(member).file_size:
        raise BadInput(f"{member} is shorter than the shape {shape} that it declares.")
    with file.open(member) as opened:
        array = npy.read_array(opened, allow_pickle=False)
    if array.dtype.str not in DTYPES or array.ndim > MAX_AXES:
        raise BadInput(f"{member} is an array of {array.dtype}; {', '.join(DTYPES)} are possible.")
    return array


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
