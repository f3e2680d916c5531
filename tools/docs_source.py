"""What source text says beside its names: the words under a field or constant, which Python itself drops."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType


def words_under(body: list[ast.stmt]) -> dict[str, str]:
    """By name, the string that stands under each annotated assignment of a class or module body, on one line."""
    found: dict[str, str] = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        found[node.target.id] = " ".join(text.split()) if isinstance(text, str) else ""
    return found


def words_of_class(kind: type) -> dict[str, str]:
    """As `words_under`, for a class and those it inherits from; the class's own words win."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        try:
            node = ast.parse(inspect.cleandoc("\n" + inspect.getsource(one))).body[0]
        except (OSError, TypeError):
            continue
        if isinstance(node, ast.ClassDef):
            found |= words_under(node.body)
    return found


def words_of_module(module: ModuleType) -> dict[str, str]:
    """As `words_under`, for the constants of a module."""
    return words_under(ast.parse(inspect.getsource(module)).body)


def cell(text: str) -> str:
    """Text that may stand in a table's cell."""
    return text.replace("|", "\\|")
