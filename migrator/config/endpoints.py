"""Listeners, voters, servers of ZooKeeper: the values of ``listeners``, ``controller.quorum.voters`` and similar keys.
Pure.

The settings, the checks and many tools parse addresses here. Each function returns typed values or raises `ValueError`
with a sentence for the operator; the caller adds file and key. No name is looked up.
"""

from __future__ import annotations

import ipaddress
import re

from migrator.config.types import INT_RANGE, entries_of, pairs_of, parse, trimmed
from migrator.values import value

_IPV6 = r"\[([0-9a-zA-Z:.%_-]+)\]"
LISTENER = re.compile(rf"([A-Za-z0-9_.-]+)://(?:{_IPV6}|([0-9a-zA-Z.%_-]*)):(-?[0-9]+)")
VOTER = re.compile(rf"\+?([0-9]+)@(?:{_IPV6}|([^:/@]+)):([0-9]+)")
ZOOKEEPER_SERVER = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:/@\s\[\]]+))(?::([0-9]{1,5}))?")
ZOOKEEPER_PORT = 2181
HOST_PORT = re.compile(rf"(?:{_IPV6}|([^:/]*)):([0-9]+)")
PROTOCOL_NAMES = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@value
class Listener:
    """A named listener; host "" is every interface, port 0 any free one."""

    name: str
    host: str
    port: int
    security_protocol: str


@value
class VoterAddress:
    voter_id: int
    host: str
    port: int


def parse_protocol_map(text: str, *, last_counts: bool = False) -> dict[str, str]:
    """``NAME:PROTOCOL,...`` -> name in upper case -> protocol.

    :param last_counts: whether the last of two entries for one listener counts, as in Kafka. Otherwise they are
        refused: an operator who reads the other entry may believe that the listener is safer than it is.
    :raises ValueError: an entry has another form or an unknown protocol, or a listener has two entries.
    """
    found: dict[str, str] = {}
    for name, protocol in ((name.upper(), protocol.upper()) for name, protocol in pairs_of(text)):
        if not name or protocol not in PROTOCOL_NAMES:
            raise ValueError(f"'{name}:{protocol}' is not LISTENER_NAME:{'|'.join(PROTOCOL_NAMES)}")
        if not last_counts and found.get(name, protocol) != protocol:
            raise ValueError(f"listener {name} has two protocols there, {found[name]} and {protocol}: leave one")
        found[name] = protocol
    return found


def parse_listeners(text: str, protocols: dict[str, str]) -> tuple[Listener, ...]:
    """``NAME://host:port,...`` -> listeners, names in upper case as Kafka keeps them.

    :raises ValueError: for a malformed entry, a doubled name, or a name that ``protocols`` does not map.
    """
    found: list[Listener] = []
    for entry in entries_of(text):
        match = LISTENER.fullmatch(entry)
        if match is None or not 0 <= int(match.group(4)) <= 65535:
            raise ValueError(f"{entry!r} is not NAME://host:port")
        name = match.group(1).upper()
        if name not in protocols:
            raise ValueError(f"listener {name} has no entry in listener.security.protocol.map")
        if any(other.name == name for other in found):
            raise ValueError(f"listener {name} is listed twice")
        found.append(Listener(name, match.group(2) or match.group(3), int(match.group(4)), protocols[name]))
    return tuple(found)


def parse_voters(entries: tuple[str, ...]) -> tuple[VoterAddress, ...]:
    """``id@host:port`` entries -> voters in order of id.

    :raises ValueError: for a malformed entry or a doubled id.
    """
    found: dict[int, VoterAddress] = {}
    for entry in entries:
        match = VOTER.fullmatch(entry)
        if match is None or not 0 < int(match.group(4)) <= 65535 or int(match.group(1)) > INT_RANGE[1]:
            raise ValueError(f"{entry!r} is not id@host:port")
        voter = VoterAddress(int(match.group(1)), match.group(2) or match.group(3), int(match.group(4)))
        if voter.voter_id in found:
            raise ValueError(f"voter {voter.voter_id} is listed twice")
        found[voter.voter_id] = voter
    return tuple(found[key] for key in sorted(found))


def parse_host_port(text: str) -> tuple[str, int]:
    """``host:port`` -> both.

    :raises ValueError: for another form.
    """
    match = HOST_PORT.fullmatch(trimmed(text))
    if match is None or not 0 <= int(match.group(3)) <= 65535:
        raise ValueError(f"{text!r} is not host:port")
    return match.group(1) or match.group(2), int(match.group(3))


def parse_per_ip(text: str) -> dict[str, int]:
    """``max.connections.per.ip.overrides``: ``host:number,...``; the last of a host counts.

    :raises ValueError: an entry has another form.
    """
    found = {}
    for host, number in pairs_of(text):
        count = parse("int", number)
        if not host or not isinstance(count, int) or count < 0:
            raise ValueError(f"'{host}:{number}' is not host:number")
        found[host] = count
    return found


def parse_bootstrap_servers(entries: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """``host:port`` entries -> host and port of each, without repetitions.

    :raises ValueError: for an entry of another form, or an address to which no client can connect.
    """
    found = [parse_host_port(entry) for entry in entries]
    for entry, (host, port) in zip(entries, found, strict=True):
        if not host or not port or "@" in host:
            raise ValueError(f"{entry!r} is not host:port")
    return tuple(dict.fromkeys(found))


@value
class ZooKeeperAddress:
    """The address of a ZooKeeper cluster: servers, each as host:port, and the chroot, "" for the root."""

    servers: tuple[str, ...]
    chroot: str

    def __str__(self) -> str:
        return f"{','.join(self.servers)}{self.chroot}"


def parse_zookeeper_connect(text: str) -> ZooKeeperAddress:
    """``host:port[,host:port][/chroot]``, as a client of ZooKeeper reads it: a chroot begins at the first slash, and
    empty entries do not count (``ConnectStringParser``).

    :raises ValueError: for another form, with what to write instead.
    """
    connect, slash, chroot = trimmed(text).partition("/")
    if "://" in text:
        raise ValueError(f"{text!r} is an address of the web: write host:port, without anything before the host")
    servers = []
    for entry in filter(None, map(trimmed, connect.split(","))):
        match = ZOOKEEPER_SERVER.fullmatch(entry)
        port = ZOOKEEPER_PORT if match is None else int(match[3] or ZOOKEEPER_PORT)
        if match is None or not 0 < port <= 65535:
            raise ValueError(f"{entry!r} is not host:port")
        servers.append(f"[{match[1]}]:{port}" if match[1] else f"{match[2]}:{port}")
    if not servers:
        raise ValueError(f"{text!r} names no server: write host:port")
    if ":" in chroot or "," in chroot:
        ends = [trimmed(part).partition("/") for part in text.split(",")]
        right = ",".join(filter(None, (trimmed(server) for server, *_ in ends)))
        last = next((path for *_, path in reversed(ends) if path), "")
        raise ValueError(f"the chroot stands once, at the end: write {right}{slash}{last}")
    if chroot and any(part in ("", ".", "..") for part in chroot.split("/")):
        raise ValueError(f"{slash + chroot!r} is no path of ZooKeeper: write /name, without a slash at the end")
    return ZooKeeperAddress(tuple(servers), f"/{chroot}" if chroot else "")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address; "" is every address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_same_host(one: str, other: str) -> bool:
    """Whether two texts are the same name or the same address: ``::1`` is ``0:0:0:0:0:0:0:1``. Names are not looked
    up."""
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return one.lower() == other.lower()
