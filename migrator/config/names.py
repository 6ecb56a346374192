"""Principals from certificates: the distinguished name as Java prints it, and ``ssl.principal.mapping.rules``.

Listeners and clients call it with the certificate of a peer. The name has to be Java's to the letter, because operators
put it into ``super.users``. A certificate that cannot be read, and a rule that would mean something else in Java, is a
`ValueError`: no caller gets a wrong name. Source: ``DefaultKafkaPrincipalBuilder``, ``SslPrincipalMapper`` (KIP-371),
``X500Principal.getName`` (RFC 2253).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from migrator.config.java_regex import java_pattern
from migrator.config.types import trimmed
from migrator.values import value

_KEYWORDS = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
"""Attribute types with names in RFC 2253. Any other type is written as its number, with the value as DER in
hexadecimal."""

_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)\s*(?:,|$)|DEFAULT\s*(?:,|$)")
_REPLACEMENT = re.compile(r"\\(.)|([^\\$]+)|\$([0-9]*)", re.DOTALL)
_LINE_ENDS_OF_JAVA = re.compile("[\r\x85\u2028\u2029]")
"""Characters that a dot does not match in Java. A real name never has them."""
_SPECIAL = re.compile(r'([,=+<>#;"\\])')
_BORDER = re.compile(r"^[ \r]+|[ \r]+\Z")
_STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""Tags that Java takes for a string, and always reads as UTF-8; any other value is written as DER in hexadecimal."""


@contextmanager
def reading_certificates() -> Iterator[None]:
    """Turn every error of the library about a certificate into a `ValueError`. The library's errors have no common
    class (``InvalidVersion``, ``TypeError``), some are raised only when a field is read, and the bytes come from a
    peer.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, x509.InvalidVersion, UnsupportedAlgorithm) as error:
        raise ValueError(f"the certificate cannot be read: {error}") from error


def distinguished_name(certificate: bytes) -> str:
    """Subject of a DER certificate, the most specific part first, for example ``CN=broker-1,OU=kafka,C=DE``.

    :raises ValueError: the bytes are no certificate, or cannot be read.
    """
    with reading_certificates():
        subject = x509.load_der_x509_certificate(certificate).subject
        values = iter(_encoded_values(subject))
        parts = ["+".join(_attribute(part.oid, *next(values)) for part in rdn) for rdn in subject.rdns]
    return ",".join(reversed(parts))


def _attribute(kind: x509.ObjectIdentifier, tag: int, content: bytes, encoded: bytes) -> str:
    if kind not in _KEYWORDS:
        return f"{kind.dotted_string}=#{encoded.hex()}"
    if tag not in _STRINGS:
        return f"{_KEYWORDS[kind]}=#{encoded.hex()}"
    escaped = _SPECIAL.sub(r"\\\1", content.decode("utf-8", "replace")).replace("\0", r"\00")
    bordered = _BORDER.sub(lambda spaces: "".join("\\" + space for space in spaces[0]), escaped)
    return f"{_KEYWORDS[kind]}={bordered}"


def _encoded_values(name: x509.Name) -> list[tuple[int, bytes, bytes]]:
    """Tag, content and DER of each attribute's value, in order.

    Name is SEQUENCE OF (SET OF (SEQUENCE of type and value)).
    """
    found = []
    ((_, sets, _),) = _elements(name.public_bytes())
    for _, attributes, _ in _elements(sets):
        for _, attribute, _ in _elements(attributes):
            _, encoded = _elements(attribute)
            found.append(encoded)
    return found


def _elements(der: bytes) -> list[tuple[int, bytes, bytes]]:
    """Tag, content and all bytes of each element in a sequence."""
    found = []
    position = 0
    while position < len(der):
        start, tag, size = position, der[position], der[position + 1]
        position += 2
        if size & 0x80:
            wide = size & 0x7F
            size = int.from_bytes(der[position : position + wide], "big")
            position += wide
        found.append((tag, der[position : position + size], der[start : position + size]))
        position += size
    return found


@value
class MappingRule:
    """``pattern`` None means DEFAULT: the unchanged name. ``replacement``: texts, and numbers of groups. ``case`` is
    "L", "U" or ""."""

    pattern: re.Pattern[str] | None
    replacement: tuple[str | int, ...] = ()
    case: str = ""


DEFAULT_RULES: Final = (MappingRule(None),)


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """``ssl.principal.mapping.rules``: comma separated ``RULE:pattern/replacement/[LU]`` or ``DEFAULT``.

    Rules that Kafka reads only at the first certificate, or that would admit nobody, are refused here.

    :raises ValueError: a rule has another form, means something else in Java, or there is none.
    """
    rules = []
    position = 0
    text = trimmed(text)
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(f"{text[position:]!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
        if match[1] is None:
            rules.append(MappingRule(None))
        else:
            pattern = java_pattern(match[1])
            rules.append(MappingRule(pattern, _replacement(match[2], pattern.groups), match[3]))
        position = match.end()
        while text[position : position + 1].isspace():
            position += 1
    if not rules:
        raise ValueError("there is no rule, so no certificate would be accepted")
    return tuple(rules)


def _replacement(text: str, groups: int) -> tuple[str | int, ...]:
    """Parse it as ``Matcher.appendReplacement`` does: a backslash quotes a character; of the digits after a dollar, as
    many count as form the number of a group."""
    parts: list[str | int] = []
    for literal, plain, digits in _REPLACEMENT.findall(text):
        if literal or plain:
            parts.append(literal or plain)
            continue
        size = next((size for size in range(len(digits), 0, -1) if int(digits[:size]) <= groups), 0)
        if not size:
            raise ValueError(f"${digits} in {text!r} names none of the {groups} groups of its pattern")
        parts.extend((int(digits[:size]), digits[size:]))
    return tuple(parts)


def map_name(name: str, rules: tuple[MappingRule, ...]) -> str:
    """The principal's name: the first rule that matches the whole ``name`` decides, and replaces the match.

    :raises ValueError: no rule matches.
    """
    for rule in rules:
        if rule.pattern is None:
            return name
        if rule.pattern.fullmatch(name) and not _LINE_ENDS_OF_JAVA.search(name):
            mapped = rule.pattern.sub(partial(_replaced, rule.replacement), name)
            return {"L": mapped.lower(), "U": mapped.upper()}.get(rule.case, mapped)
    raise ValueError(f"no rule of ssl.principal.mapping.rules applies to {name!r}")


def _replaced(replacement: tuple[str | int, ...], match: re.Match[str]) -> str:
    return "".join(part if isinstance(part, str) else match[part] or "" for part in replacement)
