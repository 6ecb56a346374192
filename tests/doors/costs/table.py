"""The attacks, as data: where the attackers stand, who they are, what they do with which frame."""

from __future__ import annotations

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
    :param seconds: how long it lasts when it is measured for the table; None: as all of them.
    :param quorum: whether it is tried on three voters, too.
    :param small: whether it is tried before each merge; all are tried in the long lane.
    """

    name: str
    door: Door
    who: Who
    move: str
    frame: str = "nothing"
    connections: int = 20
    processes: int = 1
    bare: bool = False
    seconds: float | None = None
    quorum: bool = False
    small: bool = False

    @property
    def stock_has_it(self) -> bool:
        """Whether stock Kafka has this door."""
        return self.door in KAFKA

    @property
    def title(self) -> str:
        caller = {Who.STRANGER: "stranger", Who.KNOWN: "without rights", Who.VOTER: "voter"}
        return f"{self.name} ({caller.get(self.who, self.who.name.lower())}, {self.door.value})"


KNOWN, STRANGER, OPERATOR, BROKER, VOTER = Who.KNOWN, Who.STRANGER, Who.OPERATOR, Who.BROKER, Who.VOTER
CLEAR, LOGIN, LOGIN_TLS, TLS = Door.PLAINTEXT, Door.SASL_PLAINTEXT, Door.SASL_SSL, Door.SSL
GRPC, METRICS = Door.GRPC, Door.METRICS

ATTACKS = (
    # Sent, and not waited for.
    Attack(
        "DescribeConfigs of 0.9 MB, then gone", CLEAR, STRANGER, "hang_up", "DescribeConfigs", quorum=True, small=True
    ),
    Attack("DescribeConfigs of 0.9 MB, then gone", LOGIN, KNOWN, "hang_up", "DescribeConfigs", quorum=True, small=True),
    Attack("DescribeConfigs of 0.9 MB, then gone", TLS, KNOWN, "hang_up", "DescribeConfigs"),
    Attack("DescribeConfigs of 20 MB, then gone", LOGIN, KNOWN, "hang_up", "a DescribeConfigs of 20 MB", 8),
    Attack("noise of 90 MB, then gone", CLEAR, STRANGER, "hang_up", "a frame of 90 MB", 8, small=True),
    # Answered, and not read.
    Attack("answers of 4 MB that nobody reads", CLEAR, STRANGER, "never_read", "DescribeConfigs", 60),
    Attack(
        "answers of 4 MB that nobody reads", LOGIN, KNOWN, "never_read", "DescribeConfigs", 60, quorum=True, small=True
    ),
    Attack("answers of 4 MB that nobody reads", LOGIN_TLS, KNOWN, "never_read", "DescribeConfigs", 60),
    Attack("small answers that nobody reads", LOGIN, KNOWN, "never_read", "a DescribeConfigs of 16 KB", 1_000),
    # Many elements, and answers that are read.
    Attack("DescribeConfigs of 0.9 MB", CLEAR, STRANGER, "ask", "DescribeConfigs"),
    Attack("DescribeConfigs of 0.9 MB", LOGIN, KNOWN, "ask", "DescribeConfigs", quorum=True, small=True),
    Attack("DescribeConfigs of 0.9 MB", LOGIN_TLS, OPERATOR, "ask", "DescribeConfigs"),
    Attack("CreateTopics of 13,000 in Envelopes", LOGIN_TLS, BROKER, "ask", "an Envelope"),
    Attack("Envelopes of 0.9 MB that are refused", LOGIN_TLS, BROKER, "ask", "a refused Envelope", small=True),
    Attack("AlterConfigs of 6,500 topics", LOGIN, KNOWN, "ask", "AlterConfigs"),
    Attack(
        "IncrementalAlterConfigs of 6,500 topics",
        LOGIN,
        KNOWN,
        "ask",
        "IncrementalAlterConfigs",
        quorum=True,
        small=True,
    ),
    Attack("CreateTopics of 13,000", LOGIN, KNOWN, "ask", "CreateTopics"),
    Attack("CreateAcls of 13,000", LOGIN, KNOWN, "ask", "CreateAcls"),
    Attack("AlterUserScramCredentials of 13,000", LOGIN, KNOWN, "ask", "AlterUserScramCredentials"),
    Attack("AlterPartition of 31,000 partitions", LOGIN_TLS, BROKER, "ask", "AlterPartition"),
    # Tagged fields.
    Attack(
        "logins of 512 KB of tagged fields", LOGIN, STRANGER, "ask_once", "a login of 512 KB", quorum=True, small=True
    ),
    Attack("logins of 40 KB of tagged fields", LOGIN_TLS, STRANGER, "ask_once", "a login of 40 KB"),
    Attack("requests of 512 KB of tagged fields", LOGIN, KNOWN, "ask_once", "tagged fields"),
    Attack("requests of 15 KB of tagged fields", LOGIN, KNOWN, "ask_once", "few tagged fields"),
    # What stays in the log.
    Attack("tokens with 6 MB of renewers", LOGIN, KNOWN, "ask", "a token of 6 MB", quorum=True, small=True),
    Attack(
        "tokens with 16 KB of renewers", LOGIN, KNOWN, "ask", "a token of 16 KB", quorum=True, small=True, seconds=60
    ),
    Attack("small tokens", LOGIN, KNOWN, "ask", "a small token"),
    # Slow, and half.
    Attack("1,000 frames of 39 KB without an end", LOGIN, STRANGER, "half", "a frame of 39 KB", 500, 2, small=True),
    Attack("frames of 90 MB without an end", CLEAR, STRANGER, "half", "a frame of 90 MB", 8),
    Attack("frames of 90 MB without an end", LOGIN_TLS, KNOWN, "half", "a frame of 90 MB", 8, small=True),
    Attack("frames of 1 MB, slowly", LOGIN, KNOWN, "drip", "a frame of 1 MB", 500),
    # Connections.
    Attack(
        "1,500 connections, silent", LOGIN_TLS, STRANGER, "hold", connections=750, processes=2, bare=True, small=True
    ),
    Attack("connections, gone at once", CLEAR, STRANGER, "knock", connections=50),
    Attack("handshakes of TLS, gone at once", LOGIN_TLS, STRANGER, "knock", connections=50, quorum=True),
    Attack("logins, gone at once", LOGIN, KNOWN, "knock", connections=50),
    # Small requests.
    Attack("ApiVersions, 20 connections", CLEAR, STRANGER, "ask_many", "ApiVersions"),
    Attack(
        "ApiVersions, 1,000 connections", CLEAR, STRANGER, "ask_many", "ApiVersions", 500, 2, quorum=True, small=True
    ),
    Attack("DescribeCluster, 1,000 connections", LOGIN, KNOWN, "ask_many", "DescribeCluster", 500, 2),
    Attack("DescribeConfigs of 16 KB, 50 connections", LOGIN, KNOWN, "ask_many", "a DescribeConfigs of 16 KB", 50),
    Attack("small DescribeConfigs, 1,000 connections", LOGIN, KNOWN, "ask_many", "a small DescribeConfigs", 500, 2),
    # gRPC.
    Attack("1,500 connections, silent", GRPC, STRANGER, "hold", connections=750, processes=2, bare=True, quorum=True),
    Attack("handshakes of TLS, gone at once", GRPC, STRANGER, "knock", connections=50),
    Attack("calls", GRPC, KNOWN, "call", "Vote", 50),
    Attack("calls of 16 MB", GRPC, KNOWN, "call", "Vote of 16 MB", 8, small=True),
    Attack("calls", GRPC, VOTER, "call", "DiscoverBrokers", 50),
    Attack("streams that nobody reads", GRPC, OPERATOR, "stream", "Watch", 10),
    # Metrics.
    Attack("200 connections, silent", METRICS, STRANGER, "hold", connections=200, bare=True, small=True),
    Attack("200 heads without an end", METRICS, STRANGER, "half", "a head of HTTP", 200),
    Attack("scrapes without a password", METRICS, STRANGER, "get", "GET /metrics", 20),
    Attack("questions for /ready", METRICS, STRANGER, "get", "GET /ready", 20),
)
"""Stock Kafka has the doors of Kafka alone."""
