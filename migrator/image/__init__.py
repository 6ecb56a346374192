"""The metadata of a cluster as an immutable value, and how records turn one image into the next.

`model.MetadataImage` is the metadata at one offset. Its maps are persistent, so the next image shares everything that
did not change. `loader.ImageLoader` follows a log: it applies every appended batch at once to the *speculative* image
at the log's end, on which the controller decides, and publishes what is committed and outside a transaction (KIP-868)::

    loader = ImageLoader(image_of_the_latest_snapshot)
    loader.append(base_offset, epoch, timestamp_ms, records)   # the log has appended a batch
    loader.apply()                                             # loader.speculative has it now
    delta = loader.commit(high_watermark)                      # loader.published; delta names what changed
    next_offset = loader.truncate(offset)                      # the log was cut: replay from next_offset on

`snapshot` turns an image into records and back, `digest` compares images of two controllers by one number, and
`changes` computes with the differences between images.

**Contract.** Pure: no I/O, clock or thread. The node (`migrator.node.metadata`) calls the loader on the event loop, and
does long work in steps: a generator yields None where a turn is over. Images may be read on any thread.

**What always holds.** An image never changes. Replaying the records of an image's snapshot gives an equal image. A
published image has no part of an open transaction and nothing uncommitted. `Changes` may name too much, never too
little. A record that does not fit is an `InvariantViolation`, which quotes no secret.
"""
