"""The text of an inventory -> mappings, lists, text, numbers, true and false; errors are sentences. Pure.

It takes the part of YAML that people write. It refuses what becomes very long when it is read, such as aliases of
aliases, and what does not mean what it looks like, such as ``010`` for eight.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

import fastjsonschema
import yaml

from migrator.observe.printable import printable

ENTRIES_MAX = 1_000_000
"""Values in all lists and mappings; an alias counts as all the values that it stands for."""
PROBLEM_MAX = 200
MERGE_TAG = "tag:yaml.org,2002:merge"
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,19})")
DECIMAL = re.compile(r"[-+]?([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][-+]?[0-9]{1,3})?")


class InventoryFault(Exception):  # noqa: N818 - an answer to who parses an inventory
    """A fault of an inventory. ``path``: the place in it; "" for the whole."""

    def __init__(self, path: str, what: str, remedy: str) -> None:
        super().__init__(what)
        self.path, self.what, self.remedy = path, what, remedy


def load(text: str) -> Any:
    """Parse the text.

    :raises Trouble: the text is no YAML, or has something that no inventory needs.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe one
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f"line {mark.line + 1}"
        what = (getattr(error, "problem", None) or "it cannot be read")[:PROBLEM_MAX]
        raise InventoryFault(line, f"it is no YAML: {what}", "Correct this line") from error


class _Loader(yaml.SafeLoader):
    """Refuses a key that a mapping has twice, because YAML would silently drop the first one. Accepts merge keys
    (``<<``)."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._flat: set[int] = set()

    def get_single_node(self) -> yaml.Node | None:
        """The only document, checked before any value is made of it."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _size(node, {})
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """PyYAML calls this before it reads a mapping or merges one into another; so a mapping may come here several
        times."""
        if id(node) in self._flat:
            return
        self._flat.add(id(node))
        found: set[str] = set()
        for key_node, _ in node.value:
            key = "<<" if key_node.tag == MERGE_TAG else self._key(key_node)
            if key in found:
                raise InventoryFault(_line(key_node), f"{shown(key)} stands there twice", "Remove one of them")
            found.add(key)
        super().flatten_mapping(node)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise InventoryFault(
                _line(node), "a list or a block stands in the place of a key", "Write text and a colon"
            )
        key = self.construct_object(node)
        if not isinstance(key, str):
            raise InventoryFault(_line(node), f"the key {shown(key)} is not text", "Put it into quotes")
        return key

    def integer(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node)
        if not INTEGER.fullmatch(text):
            what = f"{shown(text)} is not how a whole number is written here"
            raise InventoryFault(_line(node), what, "Write at most 20 digits, without a zero in front. Quote text")
        return int(text)

    def decimal(self, node: yaml.ScalarNode) -> float:
        text = self.construct_scalar(node)
        number = float(text) if DECIMAL.fullmatch(text) else math.nan
        if not math.isfinite(number):
            what = f"{shown(text)} is no number of anything"
            raise InventoryFault(_line(node), what, "Write a number with an end, as 0.5 is. Quote text")
        return number

    def boolean(self, node: yaml.ScalarNode) -> bool:
        text = self.construct_scalar(node)
        if text.lower() not in self.bool_values:
            raise InventoryFault(
                _line(node), f"{shown(text)} is neither true nor false", "Write one of them. Quote text"
            )
        return self.bool_values[text.lower()]

    def date(self, node: yaml.ScalarNode) -> NoReturn:
        raise InventoryFault(
            _line(node), f"{shown(self.construct_scalar(node))} is read as a date", "Put it into quotes"
        )


_KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "int": _Loader.integer,
    "float": _Loader.decimal,
    "bool": _Loader.boolean,
    "timestamp": _Loader.date,
}
for _kind, _constructor in _KINDS.items():
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _constructor)


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node has, the node itself included.

    :param known: sizes of nodes by `id`. While the size of a node is being found, it counts as too large: a node that
        contains itself has no end.
    """
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = ENTRIES_MAX
    inside: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        inside = node.value
    elif isinstance(node, yaml.MappingNode):
        inside = [part for pair in node.value for part in pair]
    size = 1 + sum(_size(part, known) for part in inside)
    if size > ENTRIES_MAX:
        what = f"with each alias (*) written out, more than {ENTRIES_MAX} values stand here"
        raise InventoryFault(_line(node), what, "Write an inventory with fewer aliases")
    known[id(node)] = size
    return size


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


SHOWN_MAX = 60
KINDS = {
    "object": "a block of lines 'key: value'",
    "array": "a list",
    "string": "text; put it into quotes",
    "integer": "a whole number, without quotes",
    "number": "a number, without quotes",
    "boolean": "true or false",
}
AT_LEAST_ONE = ("minLength", "minItems", "minProperties")
BOUNDS = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "more than"}


def said_of(error: fastjsonschema.JsonSchemaValueException) -> str:
    """The error as one sentence. For a pattern, the sentence is the ``$comment`` beside it in the schema."""
    value, rule, wanted, schema = error.value, error.rule, error.rule_definition, error.definition or {}
    if rule == "required":
        missing = [name for name in wanted if name not in value]
        return f"{_list(missing)} {'is' if len(missing) == 1 else 'are'} missing here"
    if rule == "additionalProperties":
        known = schema.get("properties", {})
        other = [name for name in value if name not in known]
        return f"{_list(other)} is not known here{_meant(other, known)}; known are {', '.join(known)}"
    if rule == "propertyNames":
        return _names(value, wanted)
    if rule in AT_LEAST_ONE:
        return "nothing stands here"
    return f"{_found(value)}it must be {_must_be(rule, wanted, schema)}"


def _must_be(rule: str | None, wanted: Any, schema: dict[str, Any]) -> str:
    if rule == "type":
        return KINDS.get(str(wanted), str(wanted))
    if rule == "enum":
        return f"one of {', '.join(map(str, wanted))}"
    if rule in BOUNDS:
        return f"{BOUNDS[rule]} {wanted}"
    return str(schema.get("$comment", f"as the schema says ({rule})"))


def _names(value: dict[str, Any], wanted: dict[str, Any]) -> str:
    if "enum" in wanted:
        other = [name for name in value if name not in wanted["enum"]]
        return f"{_list(other)} is not one of {', '.join(wanted['enum'])}{_meant(other, wanted['enum'])}"
    other = [name for name in value if not re.search(wanted["pattern"], name)]
    return f"{_list(other)} is not a name that may stand here: it must be {wanted['$comment']}"


def _meant(names: Iterable[str], known: Iterable[str]) -> str:
    found = [match for name in names for match in get_close_matches(name[:SHOWN_MAX], [*known], 1)]
    return f" (did you mean {_list(found)}?)" if found else ""


def _found(value: Any) -> str:
    if value is None:
        return "nothing stands here: "
    return "" if isinstance(value, dict | list) else f"{shown(value)} is not valid: "


def _list(names: list[str]) -> str:
    return ", ".join(map(shown, names))


def shown(found: Any) -> str:
    """A value of the file, for a message, shortened; of a list or a mapping only a general word."""
    if found is not None and not isinstance(found, str | bytes | int | float):
        return "what stands here"
    try:
        text = printable(repr(found))
    except ValueError:  # Python does not print a number with thousands of digits
        return "this number"
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."
