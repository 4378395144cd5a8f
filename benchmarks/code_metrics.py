"""Metrics of the source code itself: size, structure and language of `src/rl_teacher`.

    python -m benchmarks.code_metrics                # print the table
    python -m benchmarks.code_metrics --list words   # list the docstrings with words to avoid
    python -m benchmarks.code_metrics --list once    # list the private functions used once

Code lines exclude blank lines, comments and docstrings. Lint pragmas do not count as comments.
"""

import argparse
import ast
import io
import re
import statistics
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "rl_teacher"

AVOIDED_WORDS = (
    *("told", "tells", "lived", "living", "anew", "whoever", "somebody", "nobody", "whose own"),
    *("says", "said", "saying", "bulletin", "studio", "questionnaire", "beside it", "led to"),
    *("leads to it", "comes to be", "cannot be meant", "can be meant", "goes on"),
    *("no more than that", "whatever it", "as it is seen", "sees pictures", "moments", "findings"),
    *("begin anew", "begins with", "what is seen", "what was seen"),
    *("what it knew", "looked at", "what is asked"),
)
"""Words and phrases of the glossary's right-hand column, and others without a technical sense."""

AVOIDED_OPENINGS = (
    "What",
    "How",
    "Whether",
    "Of",
    "Who",
    "Whom",
    "Whose",
    "Where",
    "Which",
    "When",
)
"""First words that make a docstring a clause instead of a sentence or a noun phrase."""

PRAGMA = re.compile(r"#\s*(noqa|type:|pyright:|pragma)")
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Docstring:
    """A docstring, or the string below a field, and its place."""

    place: str
    text: str

    @property
    def avoided(self) -> list[str]:
        """Return the words to avoid that it contains, and its opening where that is one of them."""
        found = [word for word in AVOIDED_WORDS if re.search(rf"\b{word}\b", self.text, re.I)]
        opening = self.text.split(maxsplit=1)[0].rstrip(",.:;") if self.text.split() else ""
        return found + [opening] * (opening in AVOIDED_OPENINGS)


class SourceFile:
    """One module and its metrics."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        self.tree = ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the syntax tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions and methods, nested ones included."""
        return [node for node in self.nodes if isinstance(node, FUNCTIONS)]

    @cached_property
    def code_lines(self) -> set[int]:
        """Numbers of the lines with code."""
        layout = {
            *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING),
            *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
        }
        lines = {
            line
            for token in self._tokens
            if token.type not in layout
            for line in range(token.start[0], token.end[0] + 1)
        }
        return lines - {
            line
            for node in self.nodes
            if isinstance(node, ast.Expr) and _is_string(node.value)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }

    @cached_property
    def comment_lines(self) -> int:
        """Number of lines with a comment that is not a pragma."""
        comments = (each for each in self._tokens if each.type == tokenize.COMMENT)
        return sum(not PRAGMA.match(each.string) for each in comments)

    @property
    def function_lengths(self) -> list[int]:
        """Lines of each function, signature and docstring included."""
        return [(each.end_lineno or each.lineno) - each.lineno + 1 for each in self.functions]

    @property
    def docstrings(self) -> Iterator[Docstring]:
        """Docstrings of modules, classes, functions and fields."""
        name = self.path.relative_to(ROOT)
        for node in self.nodes:
            if isinstance(node, DEFINITIONS) and (text := ast.get_docstring(node)):
                yield Docstring(f"{name}:{getattr(node, 'lineno', 1)}", text)
            if isinstance(node, ast.ClassDef | ast.Module):
                yield from self._field_docstrings(node, str(name))

    def _field_docstrings(self, node: ast.ClassDef | ast.Module, name: str) -> Iterator[Docstring]:
        previous: ast.stmt | None = None
        for each in node.body:
            is_field = isinstance(previous, ast.AnnAssign | ast.Assign)
            if is_field and isinstance(each, ast.Expr) and _is_string(each.value):
                yield Docstring(f"{name}:{each.lineno}", ast.literal_eval(each.value))
            previous = each

    @property
    def private_functions(self) -> Iterator[tuple[str, int]]:
        """Private functions and methods with the number of their uses in this module."""
        uses = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in self.nodes
            if isinstance(node, ast.Name | ast.Attribute)
        )
        for each in self.functions:
            if each.name.startswith("_") and not each.name.endswith("__"):
                yield f"{self.path.relative_to(ROOT)}:{each.lineno} {each.name}", uses[each.name]

    @cached_property
    def _tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def import_layers() -> int:
    """Count the layers of the import contract in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return max(len(each["layers"]) for each in contracts if each["type"] == "layers")


def table(files: list[SourceFile]) -> list[tuple[str, str]]:
    """Compute the rows of the table, as pairs of metric and value."""
    lengths = sorted(length for each in files for length in each.function_lengths)
    docstrings = [docstring for each in files for docstring in each.docstrings]
    dialect = sum(bool(each.avoided) for each in docstrings)
    private = [uses for each in files for _, uses in each.private_functions]
    code = sum(len(each.code_lines) for each in files)
    comments = sum(each.comment_lines for each in files)
    small = sum(len(each.text.splitlines()) < 60 for each in files)
    percentile_90 = lengths[int(0.9 * (len(lengths) - 1))]
    return [
        ("modules in the package root", str(len(list(PACKAGE.glob("*.py"))))),
        ("layers of imports", str(import_layers())),
        ("code lines in src", f"{code:,}"),
        ("files in src", f"{len(files)} ({small} under 60 lines)"),
        ("private functions used once", f"{private.count(1)} of {len(private)}"),
        ("docstrings with words to avoid", f"{dialect / len(docstrings):.1%} of {len(docstrings)}"),
        (
            "function length, median / p90 / max",
            f"{statistics.median(lengths):g} / {percentile_90} / {lengths[-1]}",
        ),
        ("comment lines", f"{comments / (code + comments):.1%}"),
    ]


def main() -> None:
    """Print the table, or the list behind one of its rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", choices=("words", "once"), help="list what a row counts")
    wanted = parser.parse_args().list
    files = [SourceFile(path) for path in sorted(PACKAGE.rglob("*.py"))]
    if wanted == "words":
        for docstring in (each for file in files for each in file.docstrings):
            if docstring.avoided:
                print(
                    f"{docstring.place} ({', '.join(docstring.avoided)}): {docstring.text[:80]!r}"
                )
    elif wanted == "once":
        for name in (name for file in files for name, uses in file.private_functions if uses == 1):
            print(name)
    else:
        for metric, value in table(files):
            print(f"| {metric} | {value} |")


if __name__ == "__main__":
    main()
