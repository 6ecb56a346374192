"""Allow-lists of certificate names: ``migrator.grpc.voter.principals`` and ``migrator.grpc.operator.principals``.

Semicolons separate the entries, as in ``super.users``, because names have commas. A name is the whole subject of a
certificate, as Kafka prints it without mapping rules: ``User:CN=controller-1,OU=kafka,O=bank``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

USER = "User:"
_SEPARATOR = re.compile(r"(?<!\\);")
_VOTER = re.compile(r"(\d{1,10})@(.*)", re.DOTALL)


def principal_of_name(distinguished_name: str) -> str:
    """The principal that Kafka gives a certificate with this subject."""
    return USER + distinguished_name


def parse_voter_principals(text: str) -> dict[str, int]:
    """``3001@User:CN=controller-1;3002@User:CN=controller-2`` -> principal -> node id.

    A voter may have several names, for the time in which its certificate gets another subject.

    :raises ValueError: an entry has another form, or a principal is listed twice.
    """
    found: dict[str, int] = {}
    for entry in _entries(text):
        match = _VOTER.fullmatch(entry)
        if match is None:
            raise ValueError(f"{entry!r} is not id@User:name")
        principal = _principal(match[2].strip())
        if principal in found:
            raise ValueError(f"{principal} is listed twice")
        found[principal] = int(match[1])
    return found


def parse_principals(text: str) -> frozenset[str]:
    """``User:CN=alice,O=bank;User:CN=bob,O=bank`` -> principals.

    :raises ValueError: an entry is no principal.
    """
    return frozenset(map(_principal, _entries(text)))


def names_of(voters: Mapping[str, int], ids: Iterable[int]) -> frozenset[str]:
    """The principals of these nodes."""
    wanted = frozenset(ids)
    return frozenset(principal for principal, voter_id in voters.items() if voter_id in wanted)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in _SEPARATOR.split(text) if entry.strip()]


def _principal(text: str) -> str:
    if not text.startswith(USER) or "=" not in text:
        raise ValueError(f"{text!r} is not User: and the subject of a certificate, as User:CN=name,O=organization")
    return text
