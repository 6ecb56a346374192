"""What is wrong with an inventory, in words: the errors of its schema. Pure."""

from __future__ import annotations

import re
from typing import Any

import fastjsonschema

from migrator.observe.printable import printable

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
    """One sentence. A pattern is told as the ``$comment`` beside it in the schema."""
    value, rule, wanted, schema = error.value, error.rule, error.rule_definition, error.definition or {}
    if rule == "required":
        missing = [name for name in wanted if name not in value]
        return f"{_list(missing)} {'is' if len(missing) == 1 else 'are'} missing here"
    if rule == "additionalProperties":
        known = schema.get("properties", {})
        other = [name for name in value if name not in known]
        return f"{_list(other)} is not known here; known are {', '.join(known)}"
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
        return f"{_list(other)} is not one of {', '.join(wanted['enum'])}"
    other = [name for name in value if not re.search(wanted["pattern"], name)]
    return f"{_list(other)} is not a name that may stand here: it must be {wanted['$comment']}"


def _found(value: Any) -> str:
    if value is None:
        return "nothing stands here: "
    return "" if isinstance(value, dict | list) else f"{shown(value)} is not valid: "


def _list(names: list[str]) -> str:
    return ", ".join(map(shown, names))


def shown(found: Any) -> str:
    """Something of the file, for a message; without its content if it is none of one line."""
    if found is not None and not isinstance(found, str | bytes | int | float):
        return "what stands here"
    try:
        text = printable(repr(found))
    except ValueError:  # Python writes no number of thousands of digits
        return "this number"
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."
