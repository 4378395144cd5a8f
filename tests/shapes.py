"""Shapes are annotations that run: in the tests, whatever names them checks its arrays."""

from pathlib import Path

import jaxtyping

SRC = Path(__file__).parents[1] / "src"


def modules_with_shapes() -> list[str]:
    """The modules that name the shape of an array; the others have nothing to check.

    Note: jaxtyping makes every call of every function 6 microseconds longer, which over
    all modules was a third of the tests' time.
    """
    paths = sorted(SRC.rglob("*.py"))
    named = [path.relative_to(SRC).with_suffix("") for path in paths if names_shapes(path)]
    return [".".join(path.parts) for path in named]


def names_shapes(path: Path) -> bool:
    """Whether a module imports from jaxtyping."""
    return "from jaxtyping import" in path.read_text()


def check() -> None:
    """Have them checked in every module that is imported from now on."""
    jaxtyping.install_import_hook(modules_with_shapes(), "beartype.beartype")
