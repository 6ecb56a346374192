"""IP addresses in Java's spelling: access control entries use it, and the authorizer compares texts."""

from __future__ import annotations

import ipaddress

_GROUP_BYTES = 2


def peer_host(address: str | bytes, scope: int = 0) -> str:
    """An IP address as ``InetAddress.getHostAddress`` returns it.

    An IPv4 address within IPv6 is written as IPv4. IPv6 has all eight groups, without leading zeros.

    :param address: text, or the 4 or 16 bytes.
    :param scope: the interface's number after ``%``; 0 for none.
    :raises ValueError: it is not an IP address.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0] if isinstance(address, str) else address)
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    raw = parsed.packed
    groups = (int.from_bytes(raw[at : at + _GROUP_BYTES], "big") for at in range(0, len(raw), _GROUP_BYTES))
    text = ":".join(f"{group:x}" for group in groups)
    return f"{text}%{scope}" if scope else text
