"""No module of a controller holds what changes: that belongs to one controller, on its machine (`Machine.own`).

Two controllers of one process, as in the simulation, would share it; and whatever ends with a controller would stay.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import logging
import re
import struct
import types
import typing
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

import immutables
import pytest

PACKAGE = Path(__file__).parents[1] / "migrator"
ROOMS = (
    "apis", "clock.py", "config", "controller", "errors.py", "image", "log", "looked_up.py", "machine.py", "migration",
    "node", "observe", "raft", "records", "rpc", "supervision.py", "turns.py", "values.py", "wire", "zookeeper",
)  # fmt: skip
GENERATED = "rpc/stubs/"
NEEDS_KERBEROS = "zookeeper/kerberos.py"
"""Its library is an extra."""
CACHES = frozenset(
    (
        "observe.pages.template.template", "records.primitives._id_list",
        "records.schema._field_codec", "records.schema.compiled",
        "rpc.identity.read_certificate", "rpc.operator_codec._hints", "wire.decode._entity_reader",
        "wire.encode._entity_writer",
        "wire.schemas._behind_correlation",
        "wire.schemas._plan", "wire.schemas.part_type", "wire.schemas.request_type", "wire.schemas.response_type",
        "wire.shapes.shapes_of", "zookeeper.znodes.fields.broker_ids",
        "zookeeper.znodes.partition_state._usual",
    )
)  # fmt: skip
"""Of pure functions; each cache is bounded, or has one entry for each type of ours."""
MAY_STAY = {
    "controller.index.EMPTY": "handed out to be read only",
    "controller.mutation_quotas.UNLIMITED": "without a bucket, a charge changes nothing",
    "looked_up._entries": "secrets are hidden from whoever reads what this process says, whoever looked them up",
    "looked_up._wholes": "as before",
    "machine.THIS_MACHINE": "of commands; `run_node` makes a machine of its own",
    "wire.decode._room": "each thread has its own, for the one call that decodes a message",
}
CONSTANT = (
    int, float, str, bytes, type(None), type(Ellipsis), type, range, Enum, PurePath, re.Pattern, struct.Struct,
    datetime, timedelta, tzinfo, UUID, logging.Logger, ContextVar, types.FunctionType, types.BuiltinFunctionType,
    types.MethodType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ModuleType, types.GenericAlias,
    types.UnionType, typing.TypeVar, property, classmethod, staticmethod, cached_property, types.MemberDescriptorType,
    types.GetSetDescriptorType, attrgetter,
)  # fmt: skip
CHANGES = frozenset(
    (
        "__setitem__", "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
        "setdefault", "update",
    )
)  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    """Name below the package, and file."""
    for room in ROOMS:
        place = PACKAGE / room
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            name = path.relative_to(PACKAGE).as_posix()
            if not name.startswith(GENERATED) and name != NEEDS_KERBEROS:
                yield name.removesuffix(".py").removesuffix("/__init__").replace("/", "."), path


def what_changes(value: Any) -> str | None:
    """The type of a part of a value that may change; None: no part may. Dictionaries do not count: `written_to`."""
    kind = type(value)
    if isinstance(value, tuple | frozenset):
        return first_of(value)
    if isinstance(value, Mapping | immutables.Map):
        return first_of(value.values())
    if isinstance(value, partial):
        return first_of((value.func, *value.args, *value.keywords.values()))
    if hasattr(value, "cache_info"):
        return None if name_of_cache(value) in CACHES else "cache"
    if isinstance(value, CONSTANT) or kind.__module__ in {"typing", "typing_extensions", "__future__", "abc", "_abc"}:
        return None
    if dataclasses.is_dataclass(value):
        return first_of(getattr(value, field.name) for field in dataclasses.fields(value))
    return f"{kind.__module__}.{kind.__qualname__}"


def first_of(values: Any) -> str | None:
    return next(filter(None, map(what_changes, values)), None)


def name_of_cache(cached: Any) -> str:
    return f"{str(cached.__module__).removeprefix('migrator.')}.{cached.__qualname__}"


def found_in(name: str, tree: ast.Module, namespace: Mapping[str, Any]) -> Iterator[str]:
    """Module-level objects that change, and those of classes, whose attributes all their objects share."""
    for bound in (bound for statement in tree.body for bound in bound_by(statement)):
        if bound != "__all__":
            yield from changing(f"{name}.{bound}", namespace.get(bound))
    yield from (f"{name}.{written}: is written to" for written in written_to(tree))


def changing(name: str, value: Any) -> Iterator[str]:
    changes = None if type(value) is object else what_changes(value)  # a mark, which is compared only
    if changes is not None:
        yield f"{name}: {changes}"
    if isinstance(value, type) and not issubclass(value, Enum | tuple):
        for attribute, shared in vars(value).items():
            if not attribute.startswith("__"):
                yield from changing(f"{name}.{attribute}", shared)


def bound_by(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name)]


def written_to(tree: ast.Module) -> Iterator[str]:
    """Names of a module's tables that some function writes to, or binds anew."""
    names = {name for statement in tree.body for name in bound_by(statement)}
    for function in ast.walk(tree):
        if isinstance(function, ast.Global):
            yield from function.names
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = list(ast.walk(function))
            own = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            own |= {node.arg for node in inside if isinstance(node, ast.arg)}
            yield from (name for node in inside for name in written_by(node) if name in names - own)


def written_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Subscript(ast.Name(name), ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Call(ast.Attribute(ast.Name(name), method)) if method in CHANGES:
            yield name


def test_no_module_of_a_controller_holds_what_changes() -> None:
    found = [
        what
        for name, path in modules()
        for what in found_in(
            name, ast.parse(path.read_text("utf-8")), vars(importlib.import_module(f"migrator.{name}"))
        )
    ]
    assert {what.partition(":")[0] for what in found} == MAY_STAY.keys(), (
        "ask machine().own(...) in a constructor, or name a pure cache in CACHES"
    )


@pytest.mark.parametrize(
    "text",
    [
        "class Book: ...\nBOOK = Book()",
        "from concurrent.futures import ThreadPoolExecutor\nLANE = ThreadPoolExecutor(1)",
        "SEEN = set()",
        "A, B = 1, []",
        "TABLE = {1: []}",
        "COUNTS = {}\ndef note(kind): COUNTS[kind] = 1",
        "COUNTS = {}\ndef note(kind): COUNTS.setdefault(kind, 0)",
        "LAST = 0\ndef note(number):\n    global LAST\n    LAST = number",
        "class Book:\n    shared = []",
        "from functools import cache\n@cache\ndef found(name): return name",
    ],
)
def test_whatever_changes_is_found(text: str) -> None:
    namespace: dict[str, Any] = {}
    exec(text, namespace)  # noqa: S102 - the texts above
    assert list(found_in("any", ast.parse(text), namespace))
