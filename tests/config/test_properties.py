from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.config.properties import parse_properties, without_keys


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a: b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a", {"a": ""}),
        ("# a=b\n! c=d\n\n \t\n", {}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\n# not a comment", {"a": "one# not a comment"}),
        ("a=back\\\\\nb=c", {"a": "back\\", "b": "c"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\u00e9\\t.\\q", {"a": "é\t.q"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a==b", {"a": "=b"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=ends\\", {"a": "ends"}),
    ],
)
def test_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_malformed_escape_names_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_properties("a=b\nc=\\u12g4")


def test_keys_are_taken_out_and_the_rest_stays_as_it_is() -> None:
    text = "# of a\na=1,\\\n  2\n\nb : 3\n a=4\nc=5"
    assert without_keys(text, lambda key: key == "a") == "# of a\n\nb : 3\nc=5"
    assert without_keys(text, lambda _key: False) == text


def _escape(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8"))))
def test_whatever_is_written_escaped_is_read_back(values: dict[str, str]) -> None:
    # Characters beyond the basic plane stay as they are; all others are written as \\uXXXX.
    text = "\n".join(f"{_escape(key)}={_escape(value)}" for key, value in values.items())
    assert parse_properties(text) == values


@given(st.text())
def test_no_text_raises_anything_but_a_value_error(text: str) -> None:
    try:
        parse_properties(text)
    except ValueError as error:
        assert "line" in str(error)  # noqa: PT017
