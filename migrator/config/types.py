"""Kafka's configuration types: text -> typed value, with Kafka's own rules of trimming and range.

Source: ``ConfigDef.parseType`` and the validators that ``KafkaConfig`` prints as valid values.
"""

from __future__ import annotations

import re
from collections.abc import Callable

INT_RANGE = (-(2**31), 2**31 - 1)
LONG_RANGE = (-(2**63), 2**63 - 1)
SHORT_RANGE = (-(2**15), 2**15 - 1)
RANGE = re.compile(r"^\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]( or -1)?$")
CHOICE = re.compile(r"^\[([^.\]]+(?:, [^.\]]+)*)\]$")

JAVA_BLANKS = "".join(map(chr, range(33)))
"""The characters that ``String.trim`` removes from both ends. Brokers read the values that are checked here, and stop
at a value that they cannot read, so no other blank, and no digit beyond ASCII, is accepted."""
BLANKS_OF_PATTERNS = " \t\n\v\f\r"
"""``\\s`` of a regular expression of Java."""
_COMMA = re.compile(rf"[{BLANKS_OF_PATTERNS}]*,[{BLANKS_OF_PATTERNS}]*")
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")

ConfigValue = int | float | bool | str | tuple[str, ...] | None


class Secret:
    """A value that must not be printed; `reveal` is the only way to it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def parse(kind: str, text: str, valid: str = "") -> ConfigValue | Secret:
    """Parse a configured text as Kafka would.

    :param kind: int, long, short, double, boolean, string, class, list or password.
    :param valid: the valid values as Kafka words them, e.g. ``[1,...]``.
    :raises ValueError: says what is expected; never contains the value of a password.
    """
    if kind == "password":
        return Secret(trimmed(text))
    value = PARSERS[kind](text)
    _check(value, valid)
    return value


def in_kafkas_words(key: str, kind: str, valid: str, text: str) -> str:
    """Kafka's message (``ConfigException``) for a text that `parse` refuses. Not for passwords."""
    shown, why = text, f"Not a number of type {kind.upper()}"
    try:
        value = PARSERS[kind](text)
    except ValueError:
        if kind == "boolean":
            why = "Expected value to be either true or false"
        elif kind == "class":
            why = f"Class {text} could not be found."
    else:
        shown, why = trimmed(text), f"Version {trimmed(text)} is not a valid version"
        if (bounds := RANGE.match(valid)) and isinstance(value, int | float):
            shown, why = str(value), _out_of(value, *bounds.groups())
        elif choice := CHOICE.match(valid):
            allowed = choice.group(1).split(", ")
            given = value if isinstance(value, tuple) else (value,)
            shown = next((str(item) for item in given if item not in allowed), shown)
            why = f"String must be one of: {', '.join(allowed)}"
    return f"Invalid value {shown} for configuration {key}: {why}"


def _out_of(value: float, low: str, high: str | None, or_minus_one: str | None) -> str:
    if or_minus_one:
        return f"Value must be between {low} and {high} or equal to -1"
    return f"Value must be at least {low}" if value < float(low) else f"Value must be no more than {high}"


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parser(text: str) -> int:
        digits = trimmed(text)
        if not re.fullmatch(r"[+-]?[0-9]{1,40}", digits):
            raise ValueError("expected a whole number")
        number = int(digits)
        if not low <= number <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return number

    return parser


def _double(text: str) -> float:
    """Java allows a type's letter after the number. Its other forms (``NaN``, hexadecimal digits) are refused."""
    match = _DOUBLE.fullmatch(trimmed(text))
    if match is None:
        raise ValueError("expected a number")
    return float(match[1])


def _boolean(text: str) -> bool:
    word = trimmed(text).lower()
    if word not in ("true", "false"):
        raise ValueError("expected true or false")
    return word == "true"


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a key of type list; the empty text is the empty list. Two consecutive commas make an empty
    entry."""
    return tuple(_COMMA.split(trimmed(text))) if trimmed(text) else ()


def entries_of(text: str) -> tuple[str, ...]:
    """The entries of a key of type string that holds a list, ``log.dirs`` for one: there Kafka skips empty entries
    (``Csv.parseCsvList``)."""
    return tuple(filter(None, split_list(text)))


def pairs_of(text: str) -> list[tuple[str, str]]:
    """``name:text,...`` for keys that hold a map: the last colon separates (``Csv.parseCsvMap``). Empty entries are
    allowed only at the end.

    :raises ValueError: an entry has no colon.
    """
    entries = list(split_list(text))
    while entries and not entries[-1]:
        entries.pop()
    pairs = [entry.rpartition(":") for entry in entries]
    for entry, (_, separator, _) in zip(entries, pairs, strict=True):
        if not separator:
            raise ValueError(f"{entry!r} has no colon" if entry else "there is an empty entry before a comma")
    return [(trimmed(name), trimmed(rest)) for name, _, rest in pairs]


def trimmed(text: str) -> str:
    """The text after Java's ``String.trim``, which Kafka applies to every value of a property file."""
    return text.strip(JAVA_BLANKS)


def _class(text: str) -> str:
    if not trimmed(text):
        raise ValueError("expected the name of a class")
    return trimmed(text)


PARSERS: dict[str, Callable[[str], ConfigValue]] = {
    "int": _integer(*INT_RANGE),
    "long": _integer(*LONG_RANGE),
    "short": _integer(*SHORT_RANGE),
    "double": _double,
    "boolean": _boolean,
    "string": trimmed,
    "class": _class,
    "list": split_list,
}


def _check(value: ConfigValue, valid: str) -> None:
    if (bounds := RANGE.match(valid)) and isinstance(value, int | float):
        low, high, or_minus_one = bounds.groups()
        if value == -1 and or_minus_one:
            return
        if value < float(low) or (high is not None and value > float(high)):
            raise ValueError(f"expected {f'{low} to {high}' if high else f'at least {low}'}{or_minus_one or ''}")
    elif (choice := CHOICE.match(valid)) and value is not None:
        allowed = choice.group(1).split(", ")
        given = value if isinstance(value, tuple) else (value,)
        if wrong := [item for item in given if item not in allowed]:
            raise ValueError(f"{wrong[0]!r} is not one of {', '.join(allowed)}")
    elif valid == "non-empty string" and not value:
        raise ValueError("expected a text that is not empty")
