"""``quorum-state``: the highest epoch that this node knows, its vote in it, and its leader. One line of JSON.

Version 0 belongs to static voters (kraft.version 0) and names them, version 1 to voters in the log.
Source: ``org.apache.kafka.raft.FileQuorumStateStore``, ``QuorumStateData.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from migrator.log.errors import StorageError, storage_errors
from migrator.log.files import write_durably
from migrator.machine import machine
from migrator.raft.states import ElectionState
from migrator.raft.storage import LogView
from migrator.raft.voter_set import DYNAMIC_VERSION
from migrator.records.uuid import ZERO_UUID, uuid_from_text, uuid_to_text

FILE_NAME = "quorum-state"
_LOST_LOG = "the election state is that of a quorum whose voters are in its log (kraft.version 1), and the log is empty"
_LOST_LOG_REMEDY = (
    "Restore the log from a copy. Or let the other voters remove this one, empty the directory, and format it with "
    "--no-initial-controllers and controller.quorum.bootstrap.servers in place of controller.quorum.voters"
)
_NO_NODE = -1
_VERSIONS = (0, 1)


def encode_quorum_state(state: ElectionState, voters: Sequence[int] | None) -> bytes:
    """Content of the file.

    :param voters: ids of the static voters for version 0, None for version 1.
    """
    leader = _NO_NODE if state.leader_id is None else state.leader_id
    voted = _NO_NODE if state.voted_id is None else state.voted_id
    if voters is None:
        directory = uuid_to_text(state.voted_directory_id)
        fields: dict[str, Any] = {"leaderId": leader, "leaderEpoch": state.epoch, "votedId": voted}
        return orjson.dumps({**fields, "votedDirectoryId": directory, "data_version": 1})
    # Kafka's QuorumStateData requires clusterId and appliedOffset in version 0; Kafka leaves both at their defaults.
    fields = {"clusterId": "", "leaderId": leader, "leaderEpoch": state.epoch, "votedId": voted, "appliedOffset": 0}
    return orjson.dumps(
        {**fields, "currentVoters": [{"voterId": voter} for voter in sorted(voters)], "data_version": 0}
    )


def decode_quorum_state(data: bytes) -> tuple[ElectionState, int]:
    """The election state in the file, and the file's version.

    :raises ValueError: the content is not that of such a file.
    """
    fields = orjson.loads(data)
    if not isinstance(fields, dict) or fields.get("data_version") not in _VERSIONS:
        raise ValueError("it is no object with data_version 0 or 1")
    directory = uuid_from_text(fields["votedDirectoryId"]) if fields["data_version"] else ZERO_UUID
    leader, voted = _node(fields, "leaderId"), _node(fields, "votedId")
    epoch = _integer(fields, "leaderEpoch")
    if epoch < 0:
        raise ValueError(f"leaderEpoch is {epoch}")
    return ElectionState(epoch, leader, voted, directory), fields["data_version"]


def _integer(fields: Mapping[str, Any], name: str) -> int:
    number = fields.get(name)
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{name} is {number!r}")  # noqa: TRY004 (one kind of error for one kind of fault)
    return number


def _node(fields: Mapping[str, Any], name: str) -> int | None:
    number = _integer(fields, name)
    return None if number == _NO_NODE else number


class QuorumStateFile:
    """The file of one node, in the log's directory.

    A write uses the version that fits the log at that moment, as in Kafka: after the change to kraft.version 1 the file
    keeps version 0 up to the next vote or leader. Both versions can always be read.

    :param voters: the ids of the configured voters, which count while the log names none.
    :param log: the log that may name the voters; None when it never does.
    """

    def __init__(self, log_directory: Path, voters: Sequence[int], log: LogView | None = None) -> None:
        self._path = log_directory / FILE_NAME
        self._voters = voters
        self._log = log

    def read(self) -> ElectionState | None:
        """The last election state written; None when there is no file.

        :raises StorageError: the file cannot be read or understood (without it this node could vote twice in an epoch),
            or the log that belongs to the file and names the voters is lost.
        """
        with storage_errors("cannot read", self._path):
            if not machine().exists(self._path):
                return None
            data = machine().content(self._path)
        try:
            state, version = decode_quorum_state(data)
        except (ValueError, KeyError) as error:
            raise StorageError(
                f"the election state is damaged: {error}",
                where=str(self._path),
                remedy="Restore the file from a copy, or empty this node's metadata directory and format it again. "
                "Do not just delete the file: the node could vote twice in one epoch",
            ) from error
        if version == 1 and self._voters and self._is_log_empty():
            raise StorageError(_LOST_LOG, where=str(self._path), remedy=_LOST_LOG_REMEDY)
        return state

    def _is_log_empty(self) -> bool:
        """Whether the log has neither records nor the voters that a quorum is formatted with. A log with records that
        names no voters is not lost: its change to kraft.version 1 was truncated before it was committed."""
        log = self._log
        if log is None:
            return True
        return not log.end_offset() and log.membership().kraft_version < DYNAMIC_VERSION

    def write(self, state: ElectionState) -> None:
        """Replace the file; durable when this returns.

        :raises StorageError: the write failed. The vote must then not be sent.
        """
        dynamic = self._log is not None and self._log.membership().kraft_version >= DYNAMIC_VERSION
        write_durably(self._path, encode_quorum_state(state, None if dynamic else self._voters))
