"""One controller: all rooms put together on a real event loop, disk and network.

`node.run_node` runs a controller from start to stop. `core.NodeCore` is the part without servers: log, images,
consensus, decisions. The way of a write through it::

    endpoint.ControllerEndpoint.handle     a request of the Kafka listener -> migrator.apis
    active.ActiveController.write          waits its turn, decides on the image at the log's end, appends
    quorum.runner.QuorumRunner.append      steps the consensus core, and performs its effects
    metadata.MetadataRuntime               applies the batch, and publishes it after the commit; the waiting write
    answers

`leadership` starts and stops what only a leader does, and tells each `LeaderListener`. `quorum` has consensus on a real
log, clock and transport; `access` has accounts, authorization and bounds of callers; `migration` has the migration's
ports.

**Contract.** One event loop runs all of it. Fsyncs, ZooKeeper and long decisions run on threads or in worker processes.
Every task has an owner and a kind (`migrator.supervision`), and the first fatal error is the `stop_reason.StopReason`.

**What always holds.** One write is decided at a time, on an image that has all earlier ones. A request is answered
after its records are committed and published. A node that loses the leadership answers waiting writes with
NOT_CONTROLLER. A node stands for no election before it has loaded its disk. A turn of the event loop does a bounded
amount of work (`migrator.turns`).
"""
