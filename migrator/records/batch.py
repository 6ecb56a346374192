"""Record batches (magic 2) as the metadata log and its snapshots hold them.

A `Batch` is a view of bytes that never change, so a batch that was read is written again as the same bytes. Base offset
and leader epoch are outside the checksum: a worker encodes a batch, and the leader sets them (`restamp`).
Source: ``org.apache.kafka.common.record.DefaultRecordBatch``, ``org.apache.kafka.raft.internals.RecordsIterator``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import crc32c

from migrator.records.codec import DECODE_ERRORS, PREFIX_SIZE, decode_at, reader_of
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import MetadataRecord
from migrator.records.primitives import encode_zigzag, read_zigzag
from migrator.values import value

Buffer = bytes | bytearray | memoryview

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""The largest batch that a KRaft leader appends. Builders of batches stay below it."""

HEADER_SIZE = 61
LENGTH_END = 12
"""The end of the length field, which counts the bytes after it."""
MAGIC_AT = 16
CHECKED_FROM = 21
MAGIC = 2
CONTROL_ATTRIBUTE = 0x20
COMPRESSION_MASK = 0x07
NO_KEY = b"\x01"
NO_HEADERS = b"\0"

_HEADER = struct.Struct(">qiibIhiqqqhii")
_UNCHECKED = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
_POSITION_AND_LENGTH = struct.Struct(">qi")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")

_SMALL = 1 << 13
_ZIGZAG = tuple(encode_zigzag(number) for number in range(_SMALL))
_KEYLESS = tuple(b"\0\0" + index + NO_KEY for index in _ZIGZAG)
"""The bytes of a record without a key between its size and the size of its value, by its index in the batch."""
_NO_SHAPE = (NO_KEY, NO_KEY, 0, 0, 0, 0)
"""No record begins like this: a size is not negative."""


def _zigzag(number: int) -> bytes:
    """Zigzag varint of a size or an index, never negative."""
    return _ZIGZAG[number] if number < _SMALL else encode_zigzag(number)


@value
class BatchHeader:
    """Fields of a batch header; offsets and sizes as numbers, timestamps in ms."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_ATTRIBUTE)


@value
class RawRecord:
    """One record of a batch, not decoded. Only control records have a key."""

    offset: int
    key: bytes | None
    value: bytes


@value
class Batch:
    """One whole batch: its header and all its bytes, header included."""

    header: BatchHeader
    data: memoryview

    def check_crc(self) -> None:
        """:raises CorruptRecordsError: the checksum does not match the bytes."""
        actual = crc32c.crc32c(self.data[CHECKED_FROM:])
        if actual != self.header.crc:
            raise CorruptRecordsError(
                f"the batch at offset {self.header.base_offset} has checksum {actual:#010x} "
                f"instead of {self.header.crc:#010x}"
            )

    def raw_records(self) -> list[RawRecord]:
        """Every record of the batch with its key and value.

        :raises CorruptRecordsError: the records do not have KRaft's layout.
        """
        buffer, base = bytes(self.data), self.header.base_offset
        return [
            RawRecord(base + index, None if key is None else buffer[slice(*key)], buffer[start:end])
            for index, (key, start, end) in enumerate(_walk(buffer, self.header))
        ]

    def records(self) -> list[tuple[MetadataRecord, int]]:
        """Every metadata record of a data batch with its version; the first has the batch's base offset.

        :raises CorruptRecordsError: a record does not decode, or the batch is a control batch.
        """
        return list(self.iter_records())

    def iter_records(self) -> Iterator[tuple[MetadataRecord, int]]:
        """Like `records`, one after the other: a batch of a stock leader may hold 10,000 of them."""
        return ((record, version) for record, version, _ in self._decoded())

    def sized_records(self) -> Iterator[tuple[MetadataRecord, int]]:
        """Every metadata record with the number of its bytes, one after the other; errors as `records`."""
        return ((record, size) for record, _, size in self._decoded())

    def contents(self) -> Iterator[bytes]:
        """Every metadata record, not decoded.

        :raises CorruptRecordsError: the records are not laid out as KRaft demands, or the batch is a control batch.
        """
        buffer = bytes(self.data)
        for start, end in self._values(buffer):
            yield buffer[start:end]

    def _values(self, buffer: bytes) -> Iterator[tuple[int, int]]:
        self._refuse_control()
        for key, start, end in _walk(buffer, self.header):
            _refuse_key(key, start)
            yield start, end

    def _decoded(self) -> Iterator[tuple[MetadataRecord, int, int]]:
        """Each metadata record, its version, and the number of its bytes.

        Most records begin as the one before: sizes, type and version are the same. These bytes are compared, and not
        read again.
        """
        self._refuse_control()
        buffer, position = bytes(self.data), HEADER_SIZE
        starts_with = buffer.startswith
        sizes, then, middle_at, then_at, start_at, end_at = _NO_SHAPE
        for index in range(self.header.count):
            if (
                index < _SMALL
                and starts_with(sizes, position)
                and starts_with(_KEYLESS[index], position + middle_at)
                and starts_with(then, position + then_at)
            ):
                start, end = position + start_at, position + end_at
            else:
                key, start, end = _bounds(buffer, self.header, position, index)
                _refuse_key(key, start)
                reader, version = reader_of(buffer, start, end)
                sizes, then, middle_at, then_at, start_at, end_at = _shape(buffer, position, index, start, end)
            try:
                record, read_to = reader(buffer, start + PREFIX_SIZE)
                is_sound = read_to == end and buffer[end] == 0
            except DECODE_ERRORS:
                is_sound = False
            if not is_sound:  # one of the two says why
                _bounds(buffer, self.header, position, index)
                decode_at(buffer, start, end)
            yield record, version, end - start
            position = end + 1
        _refuse_rest(buffer, self.header, position)

    def _refuse_control(self) -> None:
        if self.header.is_control:
            raise CorruptRecordsError(f"the batch at offset {self.header.base_offset} holds control records")


Bounds = tuple[int, int]
"""Start and end of a slice."""


def _walk(buffer: bytes, header: BatchHeader) -> Iterator[tuple[Bounds | None, int, int]]:
    """Bounds of each record's key, then start and end of its value."""
    position = HEADER_SIZE
    for index in range(header.count):
        yield (bounds := _bounds(buffer, header, position, index))
        position = bounds[2] + 1
    _refuse_rest(buffer, header, position)


def _bounds(buffer: bytes, header: BatchHeader, position: int, index: int) -> tuple[Bounds | None, int, int]:
    """The bounds of one record's key, None without one; then start and end of its value."""
    if header.attributes & COMPRESSION_MASK:
        raise CorruptRecordsError(f"the batch at offset {header.base_offset} is compressed, which KRaft never does")
    try:
        size, start = read_zigzag(buffer, position)
        key, value_at = _key_bounds(buffer, start, index)
        value_size, value_start = read_zigzag(buffer, value_at)
        end = value_start + value_size
        is_sound = value_size > 0 and end + 1 == start + size and buffer[end] == 0
    except DECODE_ERRORS as error:
        raise CorruptRecordsError(f"the batch at offset {header.base_offset} ends within a record", position) from error
    if not is_sound:
        raise CorruptRecordsError("a record is not laid out as KRaft writes it", position)
    return key, value_start, end


def _shape(buffer: bytes, position: int, index: int, start: int, end: int) -> tuple[bytes, bytes, int, int, int, int]:
    """Of a record without a key: the bytes before its index, those behind it up to the version, and four distances from
    its beginning. The index of a later record may be longer: then the bytes behind it do not fit, because it ends with
    another byte than the size of a value begins with."""
    _, middle = read_zigzag(buffer, position)
    behind = middle + len(_zigzag(index)) + len(b"\0\0" + NO_KEY)
    bounds = middle - position, behind - position, start - position, end - position
    return buffer[position:middle], buffer[behind : start + PREFIX_SIZE], *bounds


def _refuse_key(key: Bounds | None, start: int) -> None:
    if key is not None:
        raise CorruptRecordsError("a metadata record has a key", start)


def _refuse_rest(buffer: bytes, header: BatchHeader, position: int) -> None:
    if position != len(buffer):
        raise CorruptRecordsError(f"the batch at offset {header.base_offset} does not end with its records", position)


def _key_bounds(buffer: bytes, position: int, index: int) -> tuple[Bounds | None, int]:
    """The bounds of the key of record number ``index``, None without one, and the position of the value's length."""
    expected = b"\0\0" + _zigzag(index)  # attributes (unused), timestamp delta, offset delta
    key_at = position + len(expected)
    if buffer[position:key_at] != expected:
        raise CorruptRecordsError("a record has a timestamp or an offset that KRaft does not write", position)
    if buffer[key_at : key_at + 1] == NO_KEY:
        return None, key_at + 1
    key_size, start = read_zigzag(buffer, key_at)
    if key_size < 0:
        raise CorruptRecordsError("a record has a key of negative size", position)
    return (start, start + key_size), start + key_size


def build_batch(
    values: Sequence[bytes],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
    control_keys: Sequence[bytes] = (),
) -> bytes:
    """One uncompressed batch of encoded values.

    :param timestamp_ms: append time of every record. Unlike offset and epoch it is in the checksum.
    :param control_keys: one key for each value makes it a control batch.
    """
    if not values:
        raise ValueError("a batch must hold at least one record")
    parts: list[bytes] = []
    for index, content in enumerate(values):
        key = _zigzag(len(control_keys[index])) + control_keys[index] if control_keys else NO_KEY
        size = len(content)
        middle = b"".join((b"\0\0", _zigzag(index), key, _zigzag(size)))
        parts += (_zigzag(len(middle) + size + 1), middle, content, NO_HEADERS)
    body = b"".join(parts)
    attributes = CONTROL_ATTRIBUTE if control_keys else 0
    count = len(values)
    checked = _CHECKED.pack(attributes, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)
    crc = crc32c.crc32c(body, crc32c.crc32c(checked))
    length = HEADER_SIZE - LENGTH_END + len(body)
    return b"".join((_UNCHECKED.pack(base_offset, length, leader_epoch, MAGIC, crc), checked, body))


def restamp(batches: Buffer, base_offset: int, leader_epoch: int) -> tuple[bytes, int]:
    """Whole batches with a new leader epoch and new offsets, from ``base_offset`` on.

    :returns: the changed bytes and the offset after them.
    :raises CorruptRecordsError: the buffer does not hold whole batches.
    """
    stamped = bytearray(batches)
    position = 0
    for header in iter_headers(stamped):
        _OFFSET.pack_into(stamped, position, base_offset)
        _EPOCH.pack_into(stamped, position + LENGTH_END, leader_epoch)
        base_offset += header.last_offset_delta + 1
        position += header.size
    return bytes(stamped), base_offset


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position, after a check of magic, length and counts.

    :raises CorruptRecordsError: there is no batch header, or the buffer ends within it.
    """
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptRecordsError(f"{len(buffer) - position} bytes are no batch header", position)
    header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptRecordsError(f"a batch has magic {header.magic} instead of {MAGIC}", position)
    if header.size < HEADER_SIZE or header.base_offset < 0 or header.leader_epoch < 0:
        raise CorruptRecordsError("a batch header is malformed", position)
    if header.count < 1 or header.last_offset_delta != header.count - 1:
        raise CorruptRecordsError(f"a batch of {header.count} records has last {header.last_offset_delta}", position)
    return header


def iter_headers(buffer: Buffer, *, partial_tail: bool = False) -> Iterator[BatchHeader]:
    """The headers of the whole batches in a buffer.

    :param partial_tail: end without an error at an incomplete batch, as stock leaders send at the end of a fetch.
    :raises CorruptRecordsError: there is something else than a batch, or an incomplete one without ``partial_tail``.
    """
    position, total = 0, len(buffer)
    while position < total:
        if partial_tail and not is_whole(buffer, position):
            return
        header = read_header(buffer, position)
        if position + header.size > total:
            raise CorruptRecordsError(f"a batch of {header.size} bytes is cut after {total - position}", position)
        yield header
        position += header.size


def is_whole(buffer: Buffer, position: int) -> bool:
    """Whether the buffer holds the batch at a position to its end, by the length in its header.

    :raises CorruptRecordsError: no batch begins there.
    """
    left = len(buffer) - position
    if left > MAGIC_AT and buffer[position + MAGIC_AT] != MAGIC:
        raise CorruptRecordsError(f"a batch has magic {buffer[position + MAGIC_AT]} instead of {MAGIC}", position)
    return left >= LENGTH_END and _POSITION_AND_LENGTH.unpack_from(buffer, position)[1] + LENGTH_END <= left


def iter_batches(buffer: Buffer, *, partial_tail: bool = False) -> Iterator[Batch]:
    """The batches of a buffer as views of it, without a check of their checksums; errors as `iter_headers`."""
    view, position = memoryview(buffer), 0
    for header in iter_headers(view, partial_tail=partial_tail):
        yield Batch(header, view[position : position + header.size])
        position += header.size


def split_values(
    values: Sequence[bytes], *, records_max: int, bytes_max: int = BATCH_BYTES_MAX
) -> Iterator[list[bytes]]:
    """Split values, in order, into groups that each make a batch within both bounds. A larger value is a group
    alone."""
    group: list[bytes] = []
    size = HEADER_SIZE
    for content in values:
        size += len(content) + 20
        if group and (len(group) >= records_max or size > bytes_max):
            yield group
            group, size = [], HEADER_SIZE + len(content) + 20
        group.append(content)
    if group:
        yield group
