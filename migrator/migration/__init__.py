"""The migration of a cluster from ZooKeeper into the log of this quorum (KIP-866), as the active controller does it.

`machine` decides what happens next: states, transitions, guards, and the driver. `write_behind` decides what ZooKeeper
gets of what the log holds. `coordinator.Coordinator` joins both to one pure machine, and `executor.MigrationExecutor`
performs its effects. One change while both sides are written::

    executor.published(delta)              the node has committed and published a change
    coordinator.step(Published(delta), t)  `write_behind.core` merges what waits; `translate.to_ops` derives the writes
    SendMulti                              `write_executor` sends one conditional multi to ZooKeeper
    MultiEnded                             the next multi follows, or a repair, or the end of the claim
    Advanced                               `broker_rpcs` tells brokers of the new topics that waited for ZooKeeper

`copying` reads ZooKeeper in worker processes: for the copy, and for comparisons with the image. `translate` has both
directions between znodes and the image. `rollback`, `abandoned_claim` and `seen_logs` lead back to ZooKeeper when the
controllers have stopped or are lost; `reopen_gates` says what stands against reopening a finished migration.

**Contract.** The node implements `ports`, and calls `MigrationExecutor` on its event loop. No effect waits there:
blocking calls run on threads, long readings in worker processes. The answer to an effect carries the effect's ticket or
number, and an answer that nobody waits for any more is dropped.

**What always holds.** Before the claim ZooKeeper is only read. Every write of the write-behind is a multi that checks
the claim and moves the mark in ``/migration``. The copy is one metadata transaction: until it is complete, no reader of
the log sees any of it. A comparison deletes no more than ``migrator.reconcile.max.deletes`` entities unless an operator
allows these very deletes. The migration ends only when every voter has it turned off (or an operator does without that
voter) and no broker in ZooKeeper mode is registered. Only the record in the log and ZooKeeper survive a crash: each new
leader begins with an examination of both.
"""
