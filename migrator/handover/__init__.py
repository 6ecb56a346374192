"""The hand-over: from a quorum of this program, after the migration, to Kafka's own controllers.

There are three ways (`plan.Way`). ROLLING: one voter after the other is stopped, and Kafka started on its directory,
while the quorum serves; for the releases that can join our quorum. DIRECTORY: the same with all voters stopped.
MEMBERS: controllers with new ids join as voters, and the old ones leave (KIP-853); this also works back to ours.

`execute.HandoverRun` does the first two. It looks, asks `plan` for the next step of each voter of this machine, takes
one step, and looks again::

    control = OperatorCommands("systemctl stop migrator", "systemctl start kafka", tell=print)
    run = HandoverRun([Path("/etc/migrator/controller.properties")], Handover(target, Way.ROLLING), control, tell=print)
    picture = await run.look()  # changes nothing: the next step of each voter
    await run.run()             # until Kafka runs every voter of this machine

`files` writes the stock property file and reads the metadata directory. `members` decides MEMBERS, and
`members_run` looks at the cluster and carries it out. `execute.OperatorCommands` stops and starts processes.

**Contract.** `plan` and `members` are pure. `run` may be called again, also by another process, after any failure. A
lock file next to the property file lets one process at a time hand over a controller. Errors are `OperatorError`; no
progress for ``patience_seconds`` is one of them.

**What always holds.** No controller is stopped or replaced before the migration is finished: a stock controller would
end it at once. In a rolling hand-over, a voter is stopped only while all other voters run and have every committed
record. A directory without a whole log is given to Kafka only when the other voters have every committed record. Our
property file is not changed: the stock file is next to it.
"""
