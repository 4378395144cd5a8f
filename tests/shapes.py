"""Run-time checks of array shape annotations during tests."""

import ast
from pathlib import Path

import jaxtyping
from jaxtyping import _import_hook

SRC = Path(__file__).parents[1] / "src"
SCALARS = {"int", "float", "bool", "str", "bytes"}


def modules_with_shapes() -> list[str]:
    """Return the modules with shape annotations.

    jaxtyping adds about 10 microseconds to every function call. Checking all modules took a third
    of the time of the tests.
    """
    paths = sorted(SRC.rglob("*.py"))
    named = [path.relative_to(SRC).with_suffix("") for path in paths if names_shapes(path)]
    return [".".join(path.parts) for path in named]


def names_shapes(path: Path) -> bool:
    """Return whether a module imports from jaxtyping."""
    return "from jaxtyping import" in path.read_text()


class SkipScalars(_import_hook.JaxtypingTransformer):
    """Leaves functions without arrays unchecked.

    A check is generated whenever its function is defined, so for a nested function at every call
    of the outer one. That took up to a tenth of the time of a test module.
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Add the check to a function, unless its signature has only scalars."""
        if not has_only_scalars(node):
            return super().visit_FunctionDef(node)
        self.generic_visit(node)
        return node


def has_only_scalars(function: ast.FunctionDef) -> bool:
    """Return whether all annotations of a function are scalars or unions of them."""
    annotations = [
        part.annotation
        for part in ast.walk(function.args)
        if isinstance(part, ast.arg) and part.annotation
    ]
    if function.returns:
        annotations.append(function.returns)
    return all(
        isinstance(part, ast.BinOp | ast.BitOr | ast.Load)
        or (isinstance(part, ast.Constant) and part.value is None)
        or (isinstance(part, ast.Name) and part.id in SCALARS)
        for annotation in annotations
        for part in ast.walk(annotation)
    )


def check() -> None:
    """Check the shapes of all modules that are imported afterwards."""
    _import_hook.JaxtypingTransformer = SkipScalars
    jaxtyping.install_import_hook(modules_with_shapes(), "beartype.beartype")
