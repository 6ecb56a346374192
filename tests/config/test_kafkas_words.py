"""Kafka's sentences about a refused value; `tests/differential` compares them with stock's."""

from __future__ import annotations

import pytest

from migrator.config.types import in_kafkas_words, parse


@pytest.mark.parametrize(
    ("kind", "valid", "text", "why"),
    [
        ("long", "[-1,...]", "x", "x for configuration k: Not a number of type LONG"),
        ("long", "[-1,...]", " 1e3", " 1e3 for configuration k: Not a number of type LONG"),
        ("int", "[0,...]", "99999999999", "99999999999 for configuration k: Not a number of type INT"),
        ("int", "[14,...]", " 13 ", "13 for configuration k: Value must be at least 14"),
        ("int", "[1,...,17]", "18", "18 for configuration k: Value must be no more than 17"),
        ("int", "[1,...,9] or -1", "0", "0 for configuration k: Value must be between 1 and 9 or equal to -1"),
        ("double", "[0,...,1]", "1.1", "1.1 for configuration k: Value must be no more than 1"),
        ("boolean", "", "yes", "yes for configuration k: Expected value to be either true or false"),
        ("string", "[a, b]", " c ", "c for configuration k: String must be one of: a, b"),
        ("list", "[compact, delete]", "delete,,x", " for configuration k: String must be one of: compact, delete"),
    ],
)
def test_a_value_is_refused_in_kafkas_words(kind: str, valid: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(kind, text, valid)
    assert in_kafkas_words("k", kind, valid, text) == f"Invalid value {why}"
