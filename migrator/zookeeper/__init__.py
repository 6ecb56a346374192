"""ZooKeeper: session, bulk reader, conditional writer, and the claim of controllership.

* `session.ZooKeeperSession` wraps kazoo's client with Kafka's settings: login (`logins`), TLS (`tls`), access control.
* `bulk.BulkReader` reads many znodes, some hundred a request; `writer.ConditionalWriter` sends multis.
* `leadership` decides how to claim and release controllership (KIP-866), and `claim.Claimer` reads and writes for it.
* `znodes` has one codec per family of znodes, pure: bytes <-> values, with Kafka's names, versions and rules.

An example::

    session = ZooKeeperSession(options_from(settings)).start()
    znodes = BulkReader(session).read([paths.topic("orders")])  # in the order of the paths; None for a missing znode
    outcome = ConditionalWriter(session).write([Check(path, version), SetData(path, data, version)])
    match outcome:
        case Applied() | Failed() | Unknown(): ...

**Contract.** Reads and `write` block, so workers and threads call them, not the event loop. `submit` does not block; a
thread of kazoo completes its future. A lost connection is a `ZooKeeperUnavailableError`. A znode that does not decode
is a `znodes.errors.ZnodeError`, which quotes no content.

**What always holds.** Each write of the holder of a claim is a multi that checks the claim: once another controller has
claimed, no write of this one is applied. A lost answer is `Unknown`, never taken for success or failure. No request is
sent before the login of its connection has succeeded.
"""
