"""Metrics of the source code itself: size and structure of `src/rl_teacher`.

    python -m benchmarks.code_metrics                # print the table
    python -m benchmarks.code_metrics agents store   # print a column for each of these packages too
    python -m benchmarks.code_metrics --list once    # list the private functions used once
    python -m benchmarks.code_metrics --list long    # list the functions above the 90th percentile

Code lines exclude blank lines, comments and docstrings. The length of a function is the number of
its code lines, signature included. Lint pragmas do not count as comments.
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

PRAGMA = re.compile(r"#\s*(noqa|type:|pyright:|pragma)")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class FunctionLength:
    """Length of a function.

    Attributes:
        place: file, line and name.
        code_lines: lines of code, signature included.
        lines: all lines, with blank lines, comments and docstring.
    """

    place: str
    code_lines: int
    lines: int


class SourceFile:
    """One module and its metrics."""

    def __init__(self, path: Path) -> None:
        self.name = str(path.relative_to(ROOT))
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

    @cached_property
    def function_lengths(self) -> list[FunctionLength]:
        """Lengths of all functions, those of nested functions included."""
        return [
            FunctionLength(f"{self.name}:{each.lineno} {each.name}", len(code), last - first + 1)
            for each in self.functions
            for first, last in [(each.lineno, each.end_lineno or each.lineno)]
            for code in [self.code_lines.intersection(range(first, last + 1))]
        ]

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
                yield f"{self.name}:{each.lineno} {each.name}", uses[each.name]

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


def table(files: list[SourceFile]) -> dict[str, str]:
    """Compute the metrics of some files, by the name of the metric."""
    lengths = [length for each in files for length in each.function_lengths]
    private = [uses for each in files for _, uses in each.private_functions]
    code = sum(len(each.code_lines) for each in files)
    comments = sum(each.comment_lines for each in files)
    small = sum(len(each.text.splitlines()) < 60 for each in files)
    return {
        "code lines": f"{code:,}",
        "files": f"{len(files)} ({small} under 60 lines)",
        "private functions used once": f"{private.count(1)} of {len(private)}",
        "function code lines, median / p90 / max": spread([each.code_lines for each in lengths]),
        "with docstrings, median / p90 / max": spread([each.lines for each in lengths]),
        "comment lines": f"{comments / (code + comments):.1%}",
    }


def spread(lengths: list[int]) -> str:
    """Format median, 90th percentile and maximum."""
    if not lengths:
        return "-"
    return f"{statistics.median(lengths):g} / {percentile_90(lengths)} / {max(lengths)}"


def percentile_90(lengths: list[int]) -> int:
    """Return the 90th percentile: the length that a tenth of the functions exceeds."""
    return sorted(lengths)[int(0.9 * (len(lengths) - 1))]


def main() -> None:
    """Print the table, or the list behind one of its rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packages", nargs="*", help="modules or folders of src/rl_teacher")
    parser.add_argument("--list", choices=("once", "long"), help="list what a row counts")
    given = parser.parse_args()
    files = [SourceFile(path) for path in sorted(PACKAGE.rglob("*.py"))]
    columns = {"src": files}
    for package in given.packages:
        name = (PACKAGE / package).relative_to(ROOT).as_posix()
        columns[package] = [each for each in files if each.name in (name, f"{name}.py")]
        columns[package] += [each for each in files if each.name.startswith(f"{name}/")]
        if not columns[package]:
            parser.error(f"{PACKAGE.relative_to(ROOT)} has no {package}")
    listed = [each for name in given.packages or ["src"] for each in columns[name]]
    match given.list:
        case "once":
            for place in (
                place for file in listed for place, uses in file.private_functions if uses == 1
            ):
                print(place)
        case "long":
            lengths = [length for each in files for length in each.function_lengths]
            limit = percentile_90([each.code_lines for each in lengths])
            for each in (length for file in listed for length in file.function_lengths):
                if each.code_lines > limit:
                    print(each.code_lines, each.place)
        case _:
            tables = [table(each) for each in columns.values()]
            print(f"| metric | {' | '.join(columns)} |")
            print(f"|---|{'---|' * len(columns)}")
            for metric in tables[0]:
                print(f"| {metric} | {' | '.join(each[metric] for each in tables)} |")
            print(f"\n{len(list(PACKAGE.glob('*.py')))} modules in the package root")
            print(f"{import_layers()} layers of imports")


if __name__ == "__main__":
    main()
