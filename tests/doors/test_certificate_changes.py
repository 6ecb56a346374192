"""A voter whose certificate turns bad is kept out, and let in again with a good one; the others go on meanwhile."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson

from migrator.drill.cluster import ControllerProcess, voters
from migrator.observe.authorizer_log import FILE_NAME
from migrator.observe.status import Status
from migrator.parts.processes import free_port
from migrator.records.acl_codes import AclOperation
from tests.doors.support.controllers import POLL_SECONDS, Controllers, controllers_in, log_of, name_of
from tests.patience import PATIENCE_SECONDS

WRONG = "broker-7"
LIFE = dt.timedelta(seconds=15)
"""Of the certificate that expires while it is used."""

IMPATIENT = {"controller.quorum.fetch.timeout.ms": "1000"}
"""Of the voter that is kept out: it asks for pre-votes for as long as it is, and disturbs nobody."""


async def until(what: str, condition: Callable[[], Awaitable[bool]], cluster: Controllers) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, f"not in {PATIENCE_SECONDS} s: {what}\n{cluster.account()}"
        await asyncio.sleep(POLL_SECONDS)


async def said(cluster: Controllers, controller: ControllerProcess, *texts: str) -> None:
    """Wait until one line of its log has all of these."""

    async def has_said() -> bool:
        return any(all(text in line for text in texts) for line in log_of(controller).splitlines())

    await until(f"controller {controller.node_id} says {texts}", has_said, cluster)


async def denies(controller: ControllerProcess, principal: str) -> bool:
    """Whether the authorizer has said so."""
    file = controller.metadata_directory / FILE_NAME
    lines = map(orjson.loads, file.read_bytes().splitlines()) if file.exists() else ()
    return any(
        (line.get("principal"), line.get("operation"), line["outcome"])
        == (principal, AclOperation.CLUSTER_ACTION.name, "denied")
        for line in lines
    )


async def status(controller: ControllerProcess) -> Status:
    """Its answer; a busy one is asked again."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await controller.status()
            if found is not None:
                return found


async def kept_out(cluster: Controllers, leader: ControllerProcess, voter: ControllerProcess) -> None:
    """The leader's log grows, and what is committed, too; the voter gets nothing of it."""
    ends = (await status(voter)).quorum.log_end_offset
    before = (await status(leader)).quorum

    async def grown() -> bool:
        return (await status(leader)).quorum.high_watermark > before.high_watermark + 10

    await until("the others commit", grown, cluster)
    assert (await status(voter)).quorum.log_end_offset == ends
    after = (await status(leader)).quorum
    assert (after.leader_id, after.leader_epoch) == (leader.node_id, before.leader_epoch), "nobody had to elect"


async def let_in(cluster: Controllers, voter: ControllerProcess) -> None:
    """It has what was committed when it was let in, and follows with all others."""
    committed = max(each.quorum.high_watermark for each in (await cluster.statuses()).values())

    async def caught_up() -> bool:
        found = await voter.status()
        return found is not None and found.quorum.high_watermark >= committed

    await until(f"controller {voter.node_id} has caught up", caught_up, cluster)
    await cluster.leader()


async def test_a_bad_certificate_keeps_out_a_voter_until_it_has_a_good_one(tmp_path: Path) -> None:
    with controllers_in(tmp_path) as cluster:
        leader = await cluster.leader()
        voter = next(node for node in cluster.nodes if node is not leader)
        subject = f"User:CN={name_of(voter.node_id)}"

        # It takes itself for a voter, and so does nobody else; the Kafka listener would let it in, and is not tried.
        assert await asyncio.to_thread(voter.stop) == 0
        voter.properties["migrator.grpc.voter.principals"] += f";{voter.node_id}@User:CN={WRONG}"
        voter.properties |= IMPATIENT
        cluster.replace_certificate(voter, cluster.authority.issue(WRONG))
        voter.start()
        processes = [node.process for node in cluster.nodes]
        refused = (f"'User:CN={WRONG}' may not call", "migrator.grpc.voter.principals of that controller")
        await said(cluster, leader, "Refused over gRPC", *refused)
        await said(cluster, voter, f"No gRPC with node {leader.node_id}", *refused)
        await said(cluster, leader, f"No gRPC with node {voter.node_id}", f"is User:CN={WRONG}; expected {subject}")
        await kept_out(cluster, leader, voter)
        cluster.replace_certificate(voter, cluster.authority.issue(name_of(voter.node_id)))
        await let_in(cluster, voter)

        assert [node.process for node in cluster.nodes] == processes


async def test_a_certificate_that_ends_while_it_is_used(tmp_path: Path) -> None:
    """On connections from before, and on new ones."""
    with controllers_in(tmp_path) as cluster:
        leader = await cluster.leader()
        voter = next(node for node in cluster.nodes if node is not leader)
        voter.properties |= IMPATIENT
        assert await asyncio.to_thread(voter.stop) == 0
        voter.properties["super.users"] += f";User:CN={WRONG}"
        cluster.authority.store(Path(voter.properties["ssl.keystore.location"]), WRONG)  # no way in over Kafka
        voter.start()
        await let_in(cluster, voter)
        leader = await cluster.leader()
        assert leader is not voter
        processes = [node.process for node in cluster.nodes]
        ends = cluster.authority.issue(name_of(voter.node_id), valid_for=LIFE)
        cluster.replace_certificate(voter, ends)
        await said(
            cluster,
            voter,
            f"No gRPC with node {leader.node_id}",
            f"of User:CN={name_of(voter.node_id)} cannot be used now: the certificate holds until",
            "migrator.grpc.tls.certificate.file",
        )
        await kept_out(cluster, leader, voter)
        cluster.replace_certificate(voter, cluster.authority.issue(name_of(voter.node_id)))
        await let_in(cluster, voter)
        assert [node.process for node in cluster.nodes] == processes


async def test_the_way_around_grpc_is_no_way_in(tmp_path: Path) -> None:
    """Where gRPC answers nobody, consensus comes over the Kafka listener, and needs ClusterAction there."""
    with controllers_in(tmp_path) as cluster:
        leader = await cluster.leader()
        voter = next(node for node in cluster.nodes if node is not leader)
        store = Path(voter.properties["ssl.keystore.location"])
        assert await asyncio.to_thread(voter.stop) == 0
        own = {voter.node_id: int(voter.properties["migrator.grpc.listener"].rpartition(":")[2])}
        nowhere = {node.node_id: free_port() for node in cluster.nodes if node is not voter}
        voter.properties["migrator.grpc.voters"] = voters(own | nowhere)
        voter.properties["super.users"] += f";User:CN={WRONG}"
        voter.properties |= IMPATIENT
        cluster.authority.store(store, WRONG)
        voter.start()
        await until("the leader denies it", lambda: denies(leader, f"User:CN={WRONG}"), cluster)
        await kept_out(cluster, leader, voter)

        assert await asyncio.to_thread(voter.stop) == 0
        cluster.authority.store(store, name_of(voter.node_id))
        voter.start()
        await let_in(cluster, voter)
        assert f"No gRPC with node {leader.node_id}" in log_of(voter)
