"""Listeners and voters: the values of ``listeners``, ``controller.quorum.voters`` and their like."""

from __future__ import annotations

import ipaddress
import re

from migrator.values import value

LISTENER = re.compile(r"^([A-Za-z0-9_.-]+)://(?:\[([0-9a-fA-F:.%]+)\]|([^:/]*)):(-?\d+)$")
VOTER = re.compile(r"^(\d+)@(?:\[([0-9a-fA-F:.%]+)\]|([^:/@]+)):(\d+)$")
ZOOKEEPER_SERVER = re.compile(r"^(?:\[[0-9a-fA-F:.%]+\]|[^:/@\s]+)(?::\d{1,5})?$")
HOST_PORT = re.compile(r"^(?:\[([0-9a-fA-F:.%]+)\]|([^:/]*)):(\d+)$")


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

    :param last_counts: of two entries for one listener, as in Kafka. Else they are refused: who reads the other takes
        the listener for safer than it is.

    :raises ValueError: for an entry of another form, a protocol that Kafka does not have, or a listener with two.
    """
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = entry.rpartition(":")
        if not separator or protocol.upper() not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise ValueError(f"{entry!r} is not LISTENER_NAME:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not last_counts and found.get(name, protocol) != protocol:
            raise ValueError(f"listener {name} has two protocols there, {found[name]} and {protocol}: leave one")
        found[name] = protocol
    return found


def parse_listeners(text: str, protocols: dict[str, str]) -> tuple[Listener, ...]:
    """``NAME://host:port,...`` -> listeners, names in upper case as Kafka keeps them.

    :raises ValueError: for a malformed entry, a doubled name, or a name that ``protocols`` does not map.
    """
    found: list[Listener] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = LISTENER.match(entry)
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
        match = VOTER.match(entry)
        if match is None or not 0 < int(match.group(4)) <= 65535:
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
    match = HOST_PORT.match(text.strip())
    if match is None or not 0 <= int(match.group(3)) <= 65535:
        raise ValueError(f"{text!r} is not host:port")
    return match.group(1) or match.group(2), int(match.group(3))


def parse_bootstrap_servers(entries: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """``host:port`` entries -> both of each, each once.

    :raises ValueError: for an entry of another form, or one that nobody can connect to.
    """
    found = [parse_host_port(entry) for entry in entries]
    for entry, (host, port) in zip(entries, found, strict=True):
        if not host or not port or "@" in host:
            raise ValueError(f"{entry!r} is not host:port")
    return tuple(dict.fromkeys(found))


def check_zookeeper_connect(text: str) -> None:
    """``host:port[,host:port][/chroot]``, as a client of ZooKeeper reads it: a chroot begins at the first slash.

    :raises ValueError: for another form, with what to write instead.
    """
    servers, slash, chroot = text.partition("/")
    if "://" in text:
        raise ValueError(f"{text!r} is an address of the web: write host:port, without anything before the host")
    for server in servers.split(","):
        if not ZOOKEEPER_SERVER.match(server.strip()):
            raise ValueError(f"{server!r} is not host:port")
    if ":" in chroot or "," in chroot:
        ends = [part.partition("/") for part in text.split(",")]
        right = ",".join(server for server, *_ in ends)
        raise ValueError(f"the chroot stands once, at the end: write {right}{slash}{ends[-1][2]}")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address; "" is every address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
