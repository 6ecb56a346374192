"""Writes effects of the consensus core in plain words, for transcripts of a failing test."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import messages as m
from migrator.raft.messages import RaftRequest, RaftResponse
from tests.simulation.batches import BatchStore


def describe(node: int, effect: fx.Effect, batches: BatchStore) -> str | None:  # noqa: C901 - one case a kind
    """One line for an effect, None for those that say nothing new."""
    match effect:
        case fx.PersistElectionState(state):
            choice = f"leader {state.leader_id}" if state.leader_id is not None else f"vote {state.voted_id}"
            text = f"persists epoch {state.epoch}, {choice}"
        case fx.RoleChanged(role, epoch, leader):
            text = f"is {role.value} in epoch {epoch}, leader {leader}"
        case fx.AppendLeaderChange(epoch, _, _, granting):
            text = f"opens epoch {epoch}, elected by {_join(granting)}"
        case fx.Append(data):
            found = batches.decode(data)
            text = f"appends {found[0].base_offset}..{found[-1].end_offset} of epochs {_join(b.epoch for b in found)}"
        case fx.TruncateTo(offset):
            text = f"truncates to {offset}"
        case fx.AdvanceHighWatermark(offset):
            text = f"commits up to {offset}"
        case fx.Send(peer, _, request):
            text = f"-> {peer} {_request(request)}"
        case fx.Reply(context, response):
            text = f"=> {getattr(context, 'source', '?')} {_response(response)}"
        case fx.ReadLog(context, response, offset, _):
            text = f"=> {getattr(context, 'source', '?')} records from {offset}, committed {response.high_watermark}"
        case fx.ReadSnapshot(context, response, _):
            what = f"snapshot {_at(response.snapshot_id)} from byte {response.position}"
            text = f"=> {getattr(context, 'source', '?')} {what}"
        case fx.WriteSnapshotChunk(snapshot_id, position, data):
            text = f"writes bytes {position}..{position + len(data)} of snapshot {_at(snapshot_id)}"
        case fx.InstallSnapshot(snapshot_id):
            text = f"replaces its log by snapshot {_at(snapshot_id)}"
        case fx.BlamePeer(peer, reason):
            text = f"blames {peer}: {reason}"
        case fx.ReadyToStop():
            text = "may stop"
        case _:
            return None
    return f"{node}: {text}"


def _join(items: object) -> str:
    return ",".join(str(item) for item in items)  # type: ignore[attr-defined]


def _at(end: m.EpochOffset) -> str:
    return f"{end.offset} (epoch {end.epoch})"


def _request(request: RaftRequest) -> str:
    match request:
        case m.VoteRequest():
            return f"Vote epoch {request.candidate_epoch}, log {request.last_offset} (epoch {request.last_epoch})"
        case m.BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch {request.leader_epoch}"
        case m.EndQuorumEpochRequest():
            return f"EndQuorumEpoch {request.leader_epoch}, successors {_join(request.preferred_successors)}"
        case m.FetchRequest():
            return f"Fetch from {request.fetch_offset} (epoch {request.last_fetched_epoch})"
        case m.FetchSnapshotRequest():
            return f"FetchSnapshot {_at(request.snapshot_id)} from byte {request.position}"


def _response(response: RaftResponse) -> str:
    error = response.error if response.top_error == ErrorCode.none else response.top_error
    if error != ErrorCode.none:
        return f"error {error.name}, epoch {response.leader_epoch}, leader {response.leader_id}"
    match response:
        case m.VoteResponse():
            return f"vote {'granted' if response.vote_granted else 'refused'} in epoch {response.leader_epoch}"
        case m.FetchResponse() if response.diverging is not None:
            return f"diverges: epoch {response.diverging.epoch} ends at {response.diverging.offset}"
        case m.FetchResponse() if response.snapshot_id is not None:
            return f"fetch snapshot {_at(response.snapshot_id)}"
        case _:
            return "ok"
