"""Random alterations of bytes, as by a damaged disk, a broken transfer or an attacker."""

import io
import json
import math
import zipfile

MAX_BLOCK = 64
"""Bytes that one alteration deletes, inserts, overwrites or repeats at most."""

ENDS_BYTES = 256


def altered(content, random):
    """Return bytes with one to three random alterations; `random` is a `random.Random`."""
    for _ in range(random.choice((1, 1, 2, 3))):
        # Headers and directories are at the ends.
        size = random.choice((len(content), ENDS_BYTES))
        split = random.choice((0, max(0, len(content) - size)))
        part = content[split : split + size]
        part = random.choice(ALTERATIONS)(part, random)
        content = content[:split] + part + content[split + size :]
    return content


def flip_bit(content, random):
    if not content:
        return content
    i = random.randrange(len(content))
    return content[:i] + bytes([content[i] ^ 1 << random.randrange(8)]) + content[i + 1 :]


def overwrite(content, random):
    start, end = block(content, random)
    return content[:start] + random.randbytes(end - start) + content[end:]


def fill(content, random):
    start, end = block(content, random)
    return content[:start] + random.choice((b"\x00", b"\xff")) * (end - start) + content[end:]


def delete(content, random):
    start, end = block(content, random)
    return content[:start] + content[end:]


def insert(content, random):
    start, _ = block(content, random)
    return content[:start] + random.randbytes(random.randint(1, MAX_BLOCK)) + content[start:]


def repeat(content, random):
    start, end = block(content, random)
    return content[:end] + content[start:end] + content[end:]


def truncate(content, random):
    return content[: random.randint(0, max(0, len(content) - 1))]


def change_digit(content, random):
    """Replace a digit, which changes a declared size or a number of a text format."""
    places = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return flip_bit(content, random)
    i = random.choice(places)
    return content[:i] + random.choice((b"0", b"9", b"-1", b"1e9", b"999999999")) + content[i + 1 :]


def block(content, random):
    """Return the start and end of a random block."""
    start = random.randint(0, len(content))
    return start, min(len(content), start + random.randint(1, MAX_BLOCK))


ALTERATIONS = (flip_bit, overwrite, fill, delete, insert, repeat, truncate, change_digit)


# --- behind the syntax of a file ---

ODD_VALUES = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -1e30, math.nan, math.inf),
    *("", "a", "a" * 300, "\u0000", "\ud800", "../x", [], [1], {}, {"a": 1}, [[[[]]]]),
)


def altered_json(content, random):
    """Return JSON in which one value, or one key, is another."""
    values = json.loads(content)
    holders = [*containers(values)]
    if not holders or random.random() < 0.05:
        return json.dumps(random.choice(ODD_VALUES)).encode()
    holder = random.choice(holders)
    key = random.choice([*holder] if isinstance(holder, dict) else range(len(holder)))
    if random.random() < 0.15:
        del holder[key]
    else:
        holder[key] = random.choice(ODD_VALUES)
    return json.dumps(values).encode()


def containers(values):
    """Yield all objects and arrays in JSON that are not empty."""
    if isinstance(values, dict | list) and values:
        yield values
        for each in values.values() if isinstance(values, dict) else values:
            yield from containers(each)


def altered_line(content, random):
    """Return JSON lines of which one is altered."""
    lines = content.splitlines()
    i = random.randrange(len(lines))
    lines[i] = altered_json(lines[i], random)
    return b"\n".join(lines) + b"\n"


def altered_member(content, random, alter=altered):
    """Return a zip archive with an altered member, whose checksum is correct."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = random.choice([*members])
    return zipped(members | {name: alter(members[name], random)})


def zipped(members):
    """Return a zip archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def altered_safetensors(content, random):
    """Return a safetensors file with an altered header, whose length is correct."""
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length :]
    header = random.choice((altered, altered_json))(header, random)
    return len(header).to_bytes(8, "little") + header + data
