"""Only what the product uses is in the product: what tests alone call belongs to the tests, and the rest is dead."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.rules.sources import Source, below

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


def module_of(source: Source) -> str:
    return source.name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


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


def unused(sources: Sequence[Source]) -> Iterator[str]:
    product = [source for source in below("migrator", sources) if not {*GENERATED} & {*source.name.split("/")}]
    used = {name for source in product for name in names_used(source.tree)}
    for source in product:
        for one in definitions(module_of(source), source.tree):
            if one.name not in used and not one.is_called_from_outside:
                yield f"{one}: only tests use it, or nobody: move it there, or delete it"


def modules_of_nobody(sources: Sequence[Source]) -> Iterator[str]:
    """Neither imported by the product nor named by it or by a page, as what ``python -m`` runs. Commands of the command
    line are found by their names."""
    named = {source.name: modules_named(source) for source in sources if not source.name.startswith("tests/")}
    for source in below("migrator", sources):
        module = module_of(source)
        if (
            not source.name.endswith("__init__.py")
            and not source.name.startswith("migrator/cli/")
            and not any(module in names for name, names in named.items() if name != source.name)
        ):
            yield f"{module}: only tests use it, or nobody: move it there, or delete it"


def modules_named(source: Source) -> set[str]:
    found = set(re.findall(r"\bmigrator(?:\.\w+)+", source.text))
    if source.name.endswith(".py"):
        nodes = (node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom))
        found |= {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}
    return found
