"""The controller's decisions, one file per subject: request + image -> response + records.

A decision is a pure function. It gets the image at the log's end, the request, and a `context.Context` (settings, time,
randomness, soft state), and returns a `decision.Decision`: the response, and the records that make it true::

    decision = create_topics(image, request, context)   # raises RefusedError when the whole request is refused
    node appends decision.records, waits for their commit, and then answers with decision.response

**Contract.** `migrator.apis` calls the decisions for requests, `schedule.Schedule` those that are due by the clock. The
caller holds the right to write from the decision to the append, so no other records come between them. It answers only
after the records are committed and published. Decisions may run off the event loop, since images do
not change. Error codes and messages are Kafka's where Kafka has them.

**What always holds.** The records of an atomic decision are in one batch: all or nothing. A refused part leaves no
record. No decision scans all partitions: `index.ControllerIndex` gives the same answers as a scan of the image. Work on
many partitions (fencing a broker) is an errand of many small decisions (`errands`), each on the image of its moment.
Soft state (`sessions`) is never persisted: a new leader begins it anew, and a change of leadership fences no broker.
"""
