"""Which controller an operator reaches, and how the active one is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.migration.machine.states import State
from migrator.parts.processes import free_port
from migrator.rpc.find_controller import active_controller, connect
from tests.rpc.support.identities import command_config
from tests.rpc.support.operator_node import PlayedNode, property_file, served


async def _active(config: Path) -> int:
    async with active_controller(config, None) as client:
        return (await client.status()).node_id


async def test_the_active_controller_is_the_one_behind_the_socket(tmp_path: Path) -> None:
    async with served(PlayedNode(State.DUAL_WRITING), tmp_path):
        assert await _active(property_file(tmp_path)) == 1


async def test_another_active_controller_is_found_through_the_voters(tmp_path: Path) -> None:
    here = PlayedNode(State.INACTIVE, leader_id=2)
    there = PlayedNode(State.DUAL_WRITING, node_id=2, leader_id=2)
    async with served(here, tmp_path), served(there) as address:
        assert await _active(property_file(tmp_path, address)) == 2


async def test_it_is_found_too_when_the_controller_here_is_down(tmp_path: Path) -> None:
    async with served(PlayedNode(State.DUAL_WRITING, node_id=2)) as address:
        assert await _active(property_file(tmp_path, address)) == 2


async def test_a_server_that_does_not_lead_names_the_leader() -> None:
    async with served(PlayedNode(State.INACTIVE, leader_id=3)) as address:
        with pytest.raises(OperatorError, match=r"controller 3 leads.*--server"):
            async with active_controller(None, address, command_config()):
                pass


async def test_without_a_leader_it_says_so() -> None:
    async with served(PlayedNode(State.INACTIVE, leader_id=-1)) as address:
        with pytest.raises(OperatorError, match="no controller leads"):
            async with active_controller(None, address, command_config()):
                pass


async def test_a_quorum_without_a_leader_is_not_mistaken_for_a_dead_controller(tmp_path: Path) -> None:
    async with served(PlayedNode(State.INACTIVE, leader_id=-1), tmp_path):
        with pytest.raises(OperatorError, match="no controller leads"):
            await _active(property_file(tmp_path, f"127.0.0.1:{free_port()}"))


async def test_nobody_there_is_said_with_the_first_reason(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no operator socket"):
        async with active_controller(property_file(tmp_path), None):
            pass


def test_what_is_given_must_name_a_controller() -> None:
    with pytest.raises(OperatorError, match="Give -c FILE or --server"):
        connect(None, None)
    with pytest.raises(OperatorError, match="Write HOST:PORT"):
        connect(None, "nowhere")
    with pytest.raises(OperatorError, match="--command-config FILE"):
        connect(None, "127.0.0.1:1")
