"""Only what the product uses is in the product: what tests alone call belongs to the tests, and the rest is dead."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "migrator"
GENERATED = ("stubs", "kafka_keys.py")
CALLED_BY_LIBRARIES = {"serialize": "kazoo's connection writes a request with it"}
"""Names of methods of no base class that a library calls."""
DOTTED = re.compile(r"[\w.:]+")


class Definition(NamedTuple):
    """Of a function, class, method or constant; ``owner``: the class that a method is of."""

    module: str
    owner: str
    name: str
    decorators: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join(filter(None, (self.module, self.owner, self.name)))

    @property
    def is_called_from_outside(self) -> bool:
        """By click, by the interpreter, or by a library whose class is extended."""
        return (
            self.name.startswith("__")
            or self.name in CALLED_BY_LIBRARIES
            or any("command" in decorator for decorator in self.decorators)
            or (bool(self.owner) and self._overrides_a_library())
        )

    def _overrides_a_library(self) -> bool:
        cls = getattr(importlib.import_module(self.module), self.owner)
        return any(self.name in vars(base) for base in cls.__mro__ if not base.__module__.startswith("migrator"))


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if not any(part in GENERATED for part in path.parts):
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            yield module, ast.parse(path.read_text(encoding="utf-8"))


def definitions(module: str, tree: ast.Module) -> Iterator[Definition]:
    owners: list[tuple[str, ast.Module | ast.ClassDef]] = [
        ("", tree),
        *((node.name, node) for node in tree.body if isinstance(node, ast.ClassDef)),
    ]
    for owner, body in owners:
        for node in body.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield Definition(module, owner, node.name, tuple(map(ast.unparse, node.decorator_list)))
            elif isinstance(node, ast.Assign | ast.AnnAssign) and not owner:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (Definition(module, "", each.id) for each in targets if isinstance(each, ast.Name))


def names_used(tree: ast.Module) -> Iterator[str]:
    """Also in strings, such as annotations and paths of modules; and what an ``__init__`` hands on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            yield from re.split(r"[.:]", node.value)


def test_only_what_the_product_uses_is_in_the_product() -> None:
    parsed = list(trees())
    used = {name for _, tree in parsed for name in names_used(tree)}
    unused = [
        str(one)
        for module, tree in parsed
        for one in definitions(module, tree)
        if one.name not in used and not one.is_called_from_outside
    ]
    assert not unused, "move what tests need to tests/, and delete the rest:\n" + "\n".join(unused)
