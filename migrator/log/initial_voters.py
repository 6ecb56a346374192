"""The voters that a new quorum is formatted with: ``id@host:port:directoryId``, as Kafka's tool takes them.

`migrator format` parses and prints them. A malformed or doubled entry is a `ValueError` that quotes it. Source:
``DynamicVoters`` of Kafka 3.9, KIP-853.
"""

from __future__ import annotations

import re

from migrator.raft.voter_set import DYNAMIC_VERSION, VoterSet
from migrator.records.control import DynamicVoter, KRaftVersionRange, VoterEndpoint
from migrator.records.uuid import Uuid, is_reserved, uuid_from_text, uuid_to_text

_VOTER = re.compile(r"(\d+)@(?:\[([0-9a-fA-F:.%]+)\]|([^:/@\[\]]+)):(\d+):([^:]+)")
_NODE_ID_MAX = 2**31 - 1


def parse_initial_voters(text: str, listener: str) -> VoterSet:
    """``id@host:port:directoryId,...`` -> voters.

    :param listener: name of the controllers' listener, the same for all.
    :raises ValueError: an entry has another form, an id is there twice, a directory id is invalid, or there is no
        entry.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries:
        raise ValueError("no voter is named")
    return VoterSet.of(_parse(entry, listener) for entry in entries)


def _parse(entry: str, listener: str) -> DynamicVoter:
    match = _VOTER.fullmatch(entry)
    if match is None or not 0 < int(match[4]) <= 65535 or int(match[1]) > _NODE_ID_MAX:
        raise ValueError(f"{entry!r} is not id@host:port:directoryId")
    directory_id = uuid_from_text(match[5])
    if is_reserved(directory_id):
        raise ValueError(f"{entry!r} has a directory id that Kafka keeps for itself")
    return initial_voter(int(match[1]), directory_id, VoterEndpoint(listener, match[2] or match[3], int(match[4])))


def initial_voter(node_id: int, directory_id: Uuid, endpoint: VoterEndpoint) -> DynamicVoter:
    """A voter of a new quorum."""
    return DynamicVoter(node_id, directory_id, (endpoint,), KRaftVersionRange(0, DYNAMIC_VERSION))


def initial_voters_text(voters: VoterSet) -> str:
    """The voters as text that `parse_initial_voters` reads."""
    return ",".join(map(_text, voters.voters))


def _text(voter: DynamicVoter) -> str:
    (endpoint,) = voter.endpoints
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{voter.voter_id}@{host}:{endpoint.port}:{uuid_to_text(voter.voter_directory_id)}"
