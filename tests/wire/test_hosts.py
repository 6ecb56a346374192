"""Hosts as ``java.net.InetAddress.getHostAddress`` spells them."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from migrator.wire.hosts import peer_host


@pytest.mark.parametrize(
    ("address", "scope", "expected"),
    [
        ("10.0.0.1", 0, "10.0.0.1"),
        ("::ffff:10.0.0.1", 0, "10.0.0.1"),
        ("::1", 0, "0:0:0:0:0:0:0:1"),
        ("::", 0, "0:0:0:0:0:0:0:0"),
        ("2001:0DB8::00ff:1", 0, "2001:db8:0:0:0:0:ff:1"),
        ("fe80::1", 3, "fe80:0:0:0:0:0:0:1%3"),
        ("fe80::1%eth0", 3, "fe80:0:0:0:0:0:0:1%3"),
        ("::10.0.0.1", 0, "0:0:0:0:0:0:a00:1"),
    ],
)
def test_a_host_is_spelt_as_in_java(address: str, scope: int, expected: str) -> None:
    assert peer_host(address, scope) == expected
    if not scope:
        assert peer_host(ipaddress.ip_address(address).packed) == expected, "as an envelope brings it"


@pytest.mark.parametrize("address", ["", "host", b"", b"12345", "1.2.3.4.5"])
def test_what_is_no_address_is_refused(address: str | bytes) -> None:
    with pytest.raises(ValueError, match="does not appear"):
        peer_host(address)


def test_there_is_one_spelling_only() -> None:
    """An address that another part spells by itself would pass by an entry that denies it."""
    root = Path(__file__).parents[2] / "migrator"
    spelt = {
        str(path.relative_to(root))
        for room in ("wire", "apis", "node")
        for path in (root / room).rglob("*.py")
        if "str(ipaddress." in path.read_text("utf-8")
    }
    assert spelt == set()
