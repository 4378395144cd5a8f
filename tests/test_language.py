"""Tests of the language of source, page and documentation against the glossary.

The list of words to avoid is in `benchmarks/code_metrics.py`. Limits only fall: lower one when
the text that it covers has been rewritten.
"""

import io
import re
import tokenize
from pathlib import Path

import pytest

from benchmarks.code_metrics import PRAGMA, ROOT, SourceFile

SOURCES = sorted((ROOT / "src" / "rl_teacher").rglob("*.py"))
PAGE_SOURCES = sorted(
    path for path in (ROOT / "web-ui" / "src").rglob("*") if path.suffix in (".ts", ".svelte")
)
DOCS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("*.py")),
    *sorted((ROOT / "examples").glob("*.py")),
]

DIALECT = re.compile(
    r"\b(told|lived|anew|whoever|somebody|nobody|says what|say what|what is said|what was said|"
    r"beside it|led to|comes to be|come to be|no more than that|bulletin|studio|questionnaire|"
    r"cannot be meant|whose own|fresh start|dear to|what is asked|what was asked|what is seen|"
    r"what was seen|what it knew|in so many words|said so|as it is said)\b",
    re.IGNORECASE,
)
"""Words and phrases without a technical sense, for text that is not a docstring."""

MAX_DOCSTRINGS = 0.01
MAX_COMMENT_LINES = 0.005
MAX_MESSAGES = 0.01
MAX_PAGE_LINES = 0.0
MAX_DOCS_LINES = {"docs/settings.md": 0.02, "docs/service.md": 0.02}
"""Pages made from the source; all others have none of these words."""


def share_of(lines):
    """Return the share of lines with a word to avoid, and these lines."""
    lines = list(lines)
    found = [line for line in lines if DIALECT.search(line)]
    return len(found) / max(len(lines), 1), found


def tokens(path):
    return tokenize.generate_tokens(io.StringIO(path.read_text()).readline)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_docstrings_avoid_words_and_openings_of_the_glossary():
    docstrings = [each for path in SOURCES for each in SourceFile(path).docstrings]
    found = [
        f"{each.place}: {each.avoided} {each.text[:60]!r}" for each in docstrings if each.avoided
    ]
    assert len(found) / len(docstrings) <= MAX_DOCSTRINGS, "\n".join(found)


def test_comments_avoid_words_of_the_glossary():
    share, found = share_of(
        f"{name_of(path)}:{token.start[0]}: {token.string}"
        for path in SOURCES
        for token in tokens(path)
        if token.type == tokenize.COMMENT and not PRAGMA.match(token.string)
    )
    assert share <= MAX_COMMENT_LINES, "\n".join(found)


def test_messages_avoid_words_of_the_glossary():
    """A message is a string or f-string of several words that is not a docstring."""
    pieces = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
    share, found = share_of(
        f"{name_of(path)}:{token.start[0]}: {token.string}"
        for path in SOURCES
        for token in tokens(path)
        if token.type in pieces and '"""' not in token.string and token.string.count(" ") > 2
    )
    assert share <= MAX_MESSAGES, "\n".join(found)


def test_page_sources_avoid_words_of_the_glossary():
    share, found = share_of(
        f"{name_of(path)}: {line}"
        for path in PAGE_SOURCES
        for line in path.read_text().splitlines()
    )
    assert share <= MAX_PAGE_LINES, "\n".join(found)


@pytest.mark.parametrize("path", DOCS, ids=name_of)
def test_documentation_avoids_words_of_the_glossary(path):
    share, found = share_of(path.read_text().splitlines())
    assert share <= MAX_DOCS_LINES.get(name_of(path), 0.0), "\n".join(found)
