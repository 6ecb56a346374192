"""`migrator quorum recover`: one survivor becomes the only voter when the majority is lost for good.

It runs on the survivor's machine while all controllers are stopped. It shows what may be lost and asks for the cluster
id before it writes. A voter that still listens is refused. An interrupted recovery is finished by the same command
(docs/adr/0024-a-lost-majority.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from migrator.cli.options import config_option
from migrator.cli.terminal import confirm_cluster_id, say, say_json
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.log.recovery_file import RecoveryEntry
from migrator.node.survivor import Survivor, SurvivorEvidence
from migrator.parts.processes import port_is_open
from migrator.raft.recovery import RecoveryPlan
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.uuid import is_reserved, uuid_from_text


@click.command("recover")
@config_option("Property file of the controller that is left. It must be stopped.", required=True)
@click.option(
    "--lost",
    metavar="ID@DIRECTORY-ID",
    multiple=True,
    help="Another voter, whose directory is lost or wiped. Name each of them. It is refused for ever.",
)
@click.option("--force", is_flag=True, help="Write the recovery. Without it, the command only shows what there is.")
@click.option("--yes-cluster-id", metavar="ID", help="The cluster's id, instead of typing it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(config: Path, lost: tuple[str, ...], force: bool, yes_cluster_id: str | None, as_json: bool) -> None:
    """Make a controller that is left the only voter, when the majority of the voters is gone for good.

    Stop every controller first. If a majority can still be started, start it instead: then nothing is lost. Run this
    command on the voter with the longest log. If it was interrupted, run it again. Exit codes: 0 done or shown, 2
    refused.
    """
    settings, _ = load_settings(config)
    confirmed = [_replica(text) for text in lost]
    with closing(Survivor(settings)) as survivor:
        found, begun = survivor.evidence(), survivor.unfinished()
        plan = survivor.plan(confirmed) if begun is None else None
        voters = found.membership.voters if begun is None else survivor.voters_before(begun)
        _nobody_answers(voters, settings)
        if not as_json:
            for line in _shown(found, plan, begun):
                say(line)
        if force:
            confirm_cluster_id(found.cluster_id, yes_cluster_id, whose="the cluster of this directory")
            done = [*(survivor.recover(plan) if plan is not None else ())]
            done += [*(survivor.finish(begun) if begun is not None else ())]
            if not as_json:
                for step in done:
                    say(f"written: {step}")
        if as_json:
            say_json(_to_json(found, plan, begun) | {"written": force}, indent=True)
        else:
            say(_NEXT if force else "nothing was written; add --force to recover")


_NEXT = (
    "this controller is the only voter. Start it. Then format the other controllers anew with "
    "--no-initial-controllers, start them, and add each one with 'migrator quorum add'"
)


def _replica(text: str) -> ReplicaKey:
    node_id, _, directory = text.partition("@")
    try:
        found = ReplicaKey(int(node_id), uuid_from_text(directory))
    except ValueError:
        found = None
    if found is None or found.node_id < 0 or is_reserved(found.directory_id):
        raise OperatorError(
            f"{text!r} does not name a voter",
            where="--lost",
            remedy="Write the id and the directory id, such as 1@JEXY6aqzQY-32P5TStzaFg. 'migrator quorum recover' "
            "without --lost shows those of the voters",
        )
    return found


def _nobody_answers(voters: VoterSet | None, settings: Settings) -> None:
    """Check that no other voter listens. A voter that is stopped by SIGSTOP, or whose TLS fails, still accepts
    connections.

    :raises OperatorError: a process listens at the address of another voter.
    """
    for node_id, host, port in _addresses(voters, settings):
        if port_is_open(port, host):
            raise OperatorError(
                f"voter {node_id} answers",
                where=f"{host}:{port}",
                remedy="If it has its log, start this controller too: with a majority they elect a leader, and nothing "
                "is lost. If its directory is wiped, stop it until the recovery is done",
            )


def _addresses(voters: VoterSet | None, settings: Settings) -> Iterator[tuple[int, str, int]]:
    others = [voter for voter in (voters.voters if voters else ()) if voter.voter_id != settings.node_id]
    for voter in others:
        for at in voter.endpoints:
            yield voter.voter_id, at.host, at.port
    ids = {voter.voter_id for voter in others}
    for known in settings.grpc_voters:
        if known.voter_id in ids:
            yield known.voter_id, known.host, known.port


def _shown(found: SurvivorEvidence, plan: RecoveryPlan | None, begun: RecoveryEntry | None) -> Iterator[str]:
    """The voters, the log, and the possible losses, for the terminal."""
    yield f"cluster {found.cluster_id}, controller {found.survivor}"
    yield f"the log ends at offset {found.log_end.offset}, in epoch {found.log_end.epoch}"
    if not found.is_whole:
        yield (
            "the log is not whole: this directory was empty at a start, and has not fetched since all that was "
            "committed. If another voter with a log is left, run the command there"
        )
    if begun is not None:
        yield f"a recovery in epoch {begun.epoch} was begun and is not ended; the records are in the log already"
        yield f"given up: {', '.join(map(str, begun.lost))}"
        return
    if plan is None:
        return
    yield f"voters: {', '.join(map(str, _keys(plan.before)))}"
    if found.snapshot is None:
        yield f"snapshot: none, so all {found.after_snapshot} records are in the log"
    else:
        yield f"newest snapshot: offset {found.snapshot.offset}; {found.after_snapshot} records come after it"
    if found.epoch_start is not None:
        yield f"of the last epoch: {found.log_end.offset - found.epoch_start} records, from offset {found.epoch_start}"
    yield "lost: acknowledged records of the lost voters that this log lacks. Their number is unknown"
    yield "kept: all of this log, also records at its end that no majority had. They cannot be told from the others"
    if found.open_transaction is not None:
        yield f"aborted: the transaction that begins at offset {found.open_transaction} and has no end"
    yield f"refused for ever: {', '.join(map(str, plan.lost))}"
    yield f"the only voter will be {found.survivor}, from offset {plan.offset} on, in epoch {plan.epoch}"


def _to_json(found: SurvivorEvidence, plan: RecoveryPlan | None, begun: RecoveryEntry | None) -> dict[str, Any]:
    """Voters, log and possible losses as JSON, for scripts."""
    lost = plan.lost if plan is not None else begun.lost if begun is not None else ()
    return {
        "cluster_id": found.cluster_id,
        "survivor": str(found.survivor),
        "voters": [] if plan is None else list(map(str, _keys(plan.before))),
        "refused": list(map(str, lost)),
        "log_end_offset": found.log_end.offset,
        "log_end_epoch": found.log_end.epoch,
        "epoch_start_offset": found.epoch_start,
        "snapshot_offset": None if found.snapshot is None else found.snapshot.offset,
        "records_after_snapshot": found.after_snapshot,
        "log_is_whole": found.is_whole,
        "open_transaction": found.open_transaction,
        "recovery_epoch": plan.epoch if plan is not None else begun.epoch if begun is not None else None,
        "goes_on": begun is not None,
    }


def _keys(voters: VoterSet) -> list[ReplicaKey]:
    return [voters.key(voter.voter_id) for voter in voters.voters]
