"""The attacks, as data: where the attackers stand, who they are, what they do with which frame."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.values import value
from tests.doors.costs.place import Door, Who

KAFKA = frozenset({Door.PLAINTEXT, Door.SSL, Door.SASL_PLAINTEXT, Door.SASL_SSL})


@value
class Attack:
    """One attack, or a part of one.

    :param name: what the attackers do, in words.
    :param move: of `moves.MOVES` or of `grpc_moves`.
    :param frame: of `frames.FRAMES`.
    :param connections: of each of the processes.
    :param bare: whether they do nothing of TLS or a login.
    """

    name: str
    door: Door
    who: Who
    move: str
    frame: str = "nothing"
    connections: int = 20
    processes: int = 1
    bare: bool = False

    @property
    def stock_has_it(self) -> bool:
        """Whether stock Kafka has this door."""
        return self.door in KAFKA

    @property
    def title(self) -> str:
        caller = {Who.STRANGER: "stranger", Who.KNOWN: "without rights", Who.VOTER: "voter"}
        return f"{self.name} ({caller.get(self.who, self.who.name.lower())}, {self.door.value})"


KNOWN, STRANGER, OPERATOR, BROKER = Who.KNOWN, Who.STRANGER, Who.OPERATOR, Who.BROKER
CLEAR, LOGIN, LOGIN_TLS, TLS = Door.PLAINTEXT, Door.SASL_PLAINTEXT, Door.SASL_SSL, Door.SSL

ATTACKS = (
    Attack("DescribeConfigs of 0.9 MB, 20 connections", LOGIN, KNOWN, "ask", "DescribeConfigs"),
    Attack("DescribeConfigs of 0.9 MB, then gone", LOGIN, KNOWN, "hang_up", "DescribeConfigs"),
    Attack("DescribeConfigs of 0.9 MB, then gone", CLEAR, STRANGER, "hang_up", "DescribeConfigs"),
    Attack("answers of 4 MB that nobody reads", LOGIN, KNOWN, "never_read", "DescribeConfigs", 60),
    Attack("a login of 512 KB of tagged fields", LOGIN, STRANGER, "ask_once", "a login of 512 KB"),
    Attack("a login of 40 KB of tagged fields", LOGIN, STRANGER, "ask_once", "a login of 40 KB"),
    Attack("1,000 connections ask for ApiVersions", CLEAR, STRANGER, "ask_many", "ApiVersions", 500, 2),
    Attack("20 connections ask for ApiVersions", CLEAR, STRANGER, "ask_many", "ApiVersions"),
    Attack("tokens with 16 KB of renewers", LOGIN, KNOWN, "ask", "a token of 16 KB"),
    Attack("tokens with 6 MB of renewers", LOGIN, KNOWN, "ask", "a token of 6 MB"),
    Attack("silent", Door.METRICS, STRANGER, "hold", connections=200, bare=True),
)


def named(part: str) -> Iterator[Attack]:
    """Those whose titles contain this."""
    return (attack for attack in ATTACKS if part in attack.title)
