"""The records of the metadata log, and their bytes: metadata records, control records, and record batches (magic 2).

`metadata` has every metadata record as a value, `specs` its layout as data, `codec` its bytes at each version, and
`versions` the levels of metadata.version with the record versions that each allows. `control` has the records that
consensus and snapshots write. `batch` frames both, and `runs` checks whole batches before a log appends them.

    >>> from migrator.records.codec import decode, encode
    >>> from migrator.records.metadata import TopicRecord
    >>> value = encode(TopicRecord(name="orders", topic_id=bytes(16)), version=0)
    >>> decode(value)[0].name
    'orders'

**Contract.** Pure: values and bytes only. Readers take a buffer and a position; bytes that do not decode raise
`errors.CorruptRecordsError`, to which the caller adds the file or peer. Writers raise ValueError, or
`errors.TooLongError` for a text that no Kafka reader accepts.

**What always holds.** A batch that was read is written again as the same bytes.
`fastpath` writes and reads the same bytes as the generic `schema`. An unknown record type or version is refused, not
skipped: an ignored record would be lost metadata. Unknown *tagged fields* are skipped (KIP-482).
"""
