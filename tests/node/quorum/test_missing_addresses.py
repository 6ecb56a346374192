"""Voters whose addresses nobody knows: the others say so, wait for one election time-out, and elect all the same."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from migrator.records.control import DynamicVoter, KRaftVersionRange, VoterEndpoint
from tests.node.support.dynamic import DynamicCluster


class OtherListeners(DynamicCluster):
    """The log names the voters' listeners otherwise than the files do, as a stock controller may have written them."""

    def voter(self, node_id: int) -> DynamicVoter:
        """Its listener has another name."""
        at = VoterEndpoint("ELSEWHERE", "localhost", 9000 + node_id)
        return DynamicVoter(node_id, self.directory_id(node_id), (at,), KRaftVersionRange(0, 1))

    def keys(self, node_id: int) -> dict[str, str]:
        keys = super().keys(node_id)
        servers = ",".join(voter.partition("@")[2] for voter in keys.pop("controller.quorum.voters").split(","))
        return keys | {"controller.quorum.bootstrap.servers": servers}


def said_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "does not know where" in record.msg]


async def test_who_knows_no_addresses_says_so_and_stands_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    cluster = OtherListeners(tmp_path, size=3, voters=3)
    cluster.format()
    cluster.start(1)
    cluster.start(2)
    try:
        await cluster.leader()
        said = said_in(caplog)
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
    assert not cluster.failures
    missed = {line.partition(" are: ")[2].partition(". ")[0] for line in said}
    assert missed
    assert missed <= {"2, 3", "1, 3"}
