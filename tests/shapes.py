"""Run-time checks of array shape annotations during tests."""

from pathlib import Path

import jaxtyping

SRC = Path(__file__).parents[1] / "src"


def modules_with_shapes() -> list[str]:
    """Return the modules with shape annotations.

    jaxtyping adds 6 microseconds to every function call. Checking all modules took a third of the
    time of the tests.
    """
    paths = sorted(SRC.rglob("*.py"))
    named = [path.relative_to(SRC).with_suffix("") for path in paths if names_shapes(path)]
    return [".".join(path.parts) for path in named]


def names_shapes(path: Path) -> bool:
    """Return whether a module imports from jaxtyping."""
    return "from jaxtyping import" in path.read_text()


def check() -> None:
    """Check the shapes of all modules that are imported afterwards."""
    jaxtyping.install_import_hook(modules_with_shapes(), "beartype.beartype")
