"""The disk of one controller: log segments, snapshots, and the small files next to them, in Kafka's formats.

A stock controller can continue from a directory that this program has written, and the other way round. The files:

* ``meta.properties`` (`meta_properties`), ``.lock`` (`lock`), ``bootstrap.checkpoint`` (`bootstrap`): in the metadata
  directory; `formatting` writes and opens them.
* ``__cluster_metadata-0``: segments (`segment`), snapshots (`snapshots`), ``leader-epoch-checkpoint`` (`epochs`) and
  ``quorum-state`` (`quorum_state`).
* Beside the segments, and ignored by stock Kafka: ``synced-end`` (`synced_end`), ``must-fetch-first`` (`empty_mark`)
  and
  ``quorum-recovery`` (`recovery_file`).

`metadata_log.MetadataLog` puts segments, snapshots and epochs together. It is the `migrator.raft.storage.LogView` of a
real node::

    log = MetadataLog.open(metadata_directory)      # recovers: a torn end is cut off, other damage is refused
    end = log.append(batches)                       # written, not durable
    synced = await loop.run_in_executor(None, log.sync)  # durable up to here; may count in a majority
    records = log.read(offset, max_bytes)

**Contract.** One thread, that of the event loop, calls a `MetadataLog`; `sync` and `remove_deleted` may run in others.
Errors are `errors.StorageError`, with a remedy for the operator.

**What always holds.** Only `append` leaves something that is not durable. A file with its final name is whole: content
goes to a temporary file, which is fsynced and renamed. A full disk changes nothing (`errors.NoSpaceError`). After any
other failed write, or a failed fsync, the log raises for ever and the process has to stop: the kernel may have dropped
the pages. Recovery never cuts off a record below ``synced-end``.
"""
