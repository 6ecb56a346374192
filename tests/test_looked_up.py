"""A value that was looked up for a placeholder is hidden anywhere in a text; a common word is not."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migrator.errors import OperatorError
from migrator.looked_up import forget, remember, without_looked_up

PLACEHOLDER = "${file:/etc/other:key}"
ENTRIES = st.text(string.ascii_letters + string.digits + "-_+$", min_size=6).filter(
    lambda it: it.strip("0123456789.") != ""
)


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.sampled_from(", ;:=@/\n"))
@example(["Zq7Marker"], ",")
def test_every_part_of_a_value_is_hidden(entries: list[str], separator: str) -> None:
    forget()
    whole = separator.join(entries)
    remember(whole, PLACEHOLDER, frozenset(), by_entry=True)
    for entry in entries:
        for said in (
            f"{entry!r} is no port", f"(value {whole!r})", f"{entry.upper()}://host", f"/var/{entry}/log",
            f"no {entry}. Or", f"listener.name.{entry.lower()}.ssl.key", f"{entry}: not there", f"it is {whole}",
        ):  # fmt: skip
            assert entry.lower() not in without_looked_up(said).lower().replace(PLACEHOLDER, ""), said


@pytest.mark.parametrize("text", ["3", "9093", "30001", "abc", "org.apache.kafka", "kafka-1"])
def test_what_is_common_is_shown(text: str) -> None:
    remember(text, PLACEHOLDER, frozenset({"org.apache.kafka", "kafka-1"}), by_entry=True)
    assert str(OperatorError(f"{text}: no", where=text, remedy=text)) == f"{text}: {text}: no. {text}"


def test_a_text_is_hidden_only_as_a_whole_where_no_message_shows_a_part() -> None:
    """The words of a login are in many messages."""
    remember("PlainLoginModule required password=x;", PLACEHOLDER, frozenset(), by_entry=False)
    assert without_looked_up("a password is required") == "a password is required"
    assert without_looked_up("of 'PlainLoginModule required password=x;'") == f"of '{PLACEHOLDER}'"
