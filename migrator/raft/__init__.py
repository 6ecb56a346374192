"""The consensus core: Raft as KRaft does it, without any I/O.

It has elections and replication (KIP-595), snapshots (KIP-630) and pre-votes (KIP-996). The voters are configured
(kraft.version 0), or they are in the log and change one at a time (kraft.version 1, KIP-853). Replicas that were given
up when a majority was lost are refused (docs/adr/0024-a-lost-majority.md).

`core.RaftNode` is a state machine: ``step(event, now_ms)`` takes one event (`events`) and returns effects (`effects`).
The core has no thread, clock, file or socket: the node that drives it performs the effects and brings the events.
`migrator.node` drives it on real disks and sockets, `tests.simulation` on models of both. The loop of a driver::

    core = RaftNode(config, log, stored_election_state, Random(), now_ms())
    event = Tick()
    while True:
        for effect in core.step(event, now_ms()):
            perform(effect)  # in this order: write, send, answer, publish
        event = next_event() or Tick()  # waits no longer than until core.deadline()

**What always holds.** An epoch has one leader at most. A vote is on disk before it is sent. A record counts as
committed when a majority of the voters has it fsynced, and from then on every leader has it; only the recovery of a
lost majority may lose it. The high watermark of a process never falls.

**The contract between core and node**

1. *One step at a time.* The node performs every effect of a step, in order, before the next step. Events that arrive
   meanwhile wait. ``now_ms`` comes from one monotonic clock and never goes back.
2. *Durable at once:* `PersistElectionState`, `TruncateTo`, `InstallSnapshot`, and the changes that `QuorumIsNew` and
   `LogIsWhole` make to the mark of an empty disk, are on disk (file and directory fsynced) before the next effect of
   the list is performed. A vote therefore never leaves before it is durable. If one of them fails, the node stops the
   process: nothing after it may happen.
3. *Durable later:* `Append`, `AppendLeaderChange` and `AppendVoters` write to the log without fsync, and `RequestSync`
   asks for one in the background. When an fsync that began after the request has ended, the node reports `LogSynced`
   with the end offset that the log had and the newest generation that had been asked for when that fsync began.
   Requests may share an fsync (group commit). A failing fsync stops the process.
   The core counts only what is synced: a leader's own share in the high watermark, the offset that a follower
   fetches next (its fetch offset is the claim "I have everything before it on disk"), a follower's high watermark.
4. *A full disk:* when an append fails, the log removes the part that it wrote. The node performs the rest of the list
   as usual and reports `AppendFailed`. A leader then resigns, a follower tries again later.
   When a snapshot chunk cannot be written, the node reports `SnapshotFailed`, once, and performs no `FinishSnapshot`
   for that download: another download of the same snapshot may have begun by then.
5. *Reads happen when performed:* the node may answer `ReadLog` and `ReadSnapshot` some steps later, in their order, and
   from the log of that moment. When the leader epoch of the answer is over by then, or the log begins later, a
   `ReadLog` is answered without records. A fetch that was waiting is answered after the append that it waited for,
   because it follows it in the list. Every `RequestReceived` gets exactly one `Reply`, `ReadLog` or `ReadSnapshot`, in
   this or a later step. `telling` alone decides which replica may learn the epoch and the leader.
6. *Requests out:* for each `Send` the node reports one `ResponseReceived` or `RequestFailed` with the same correlation,
   or nothing at all: the core forgets a request after ``request_timeout_ms``. At most one is outstanding per peer.
7. *Proposals:* a leader's node encodes batches without offsets and steps `Propose`. They get offsets and epoch when
   `Append` is performed, and not before: the leader itself appends records (voters), too. The records are
   committed when `AdvanceHighWatermark` passes them. When `RoleChanged` comes first, they may be lost, or may never
   have been appended.
   `ChangeVoters` is answered within its step, by `AppendVoters` or `VotersRefused`. The voters that the log names are
   in force from the next step on: ``log.membership()`` shows them as soon as they are appended, cut or installed.
8. *At boot* the log that the core is given has been recovered and fsynced, and a snapshot beyond its end has
   replaced it. Afterwards its start offset moves only to the end offset of a snapshot that it has, and not while the
   effects of a step are performed.
9. *Remote input never raises*: it ends in an error response or is reported by `BlamePeer`. `InvariantViolation` means
   that this process itself is in a wrong state, and has to stop.
"""
