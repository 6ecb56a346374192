"""Hides the values of placeholders (``config.providers``) in every text that people read.

A value of another file may be a secret, whatever key it stands under: a password under ``listeners`` is no listener,
and the message that says so must not show it. So each such value is remembered where it is read
(`migrator.config.providers`). Every error for operators, every line of the log and of standard error, and every finding
of preflight shows the placeholder in its place. No check of a key has to think of it.

A value is hidden as a whole and entry by entry, in upper and in lower case: a message may show a part of it. Common
words are not hidden: Kafka's own, those that the property file itself shows, and numbers of few digits (ids, ports).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

SHORTEST = 4
"""The least length of a hidden text: shorter ones occur in many words."""
_ENTRY = re.compile(r"[^\s,;:=@/\"'()\[\]{}<>|\\]+")
_PARTS = (_ENTRY, re.compile(r"[^\s,;:=@/\"'()\[\]{}<>|\\.!?]+"), re.compile(r"\w+"))
"""The forms of an entry in a text: alone, between dots or before the end of a sentence, within a name."""
_FEW_DIGITS = re.compile(r"[0-9]{1,5}")
_entries: dict[str, str] = {}
"""The hidden text, in lower case -> the text that is shown instead."""
_wholes: dict[str, tuple[re.Pattern[str], str]] = {}
"""The same for values of several entries, as they are and as Python's repr shows them."""


def words_of(text: str) -> Iterator[str]:
    """All that `without_looked_up` would compare in a text, in lower case."""
    for part in _PARTS:
        yield from part.findall(text.lower())


def remember(text: str, placeholder: str, public: Collection[str], *, by_entry: bool) -> None:
    """Show the placeholder instead of that value from now on.

    :param public: the words that are not secret, in lower case.
    :param by_entry: whether a message may show one entry of it alone.
    """
    whole = text.strip()
    for entry in set(_ENTRY.findall(whole.lower())) if by_entry else {whole.lower()}:
        if len(entry) >= SHORTEST and entry not in public and not _FEW_DIGITS.fullmatch(entry):
            _entries.setdefault(entry, placeholder)
    for form in {whole, repr(whole)[1:-1]}:
        if len(form) >= SHORTEST and not _ENTRY.fullmatch(form):
            _wholes[form] = (re.compile(re.escape(form), re.IGNORECASE), placeholder)


def forget() -> None:
    """Forget all looked-up values."""
    _entries.clear()
    _wholes.clear()


def without_looked_up(text: str) -> str:
    """The text for a person: placeholders instead of values that were looked up."""
    if not _entries and not _wholes:
        return text
    for form in sorted(_wholes, key=len, reverse=True):
        whole, placeholder = _wholes[form]
        text = whole.sub(placeholder.replace("\\", r"\\"), text)
    for part in _PARTS:
        text = part.sub(lambda match: _entries.get(match[0].lower(), match[0]), text)
    return text
