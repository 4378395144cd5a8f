"""Text of messages."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 label` and `2,000 labels`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
