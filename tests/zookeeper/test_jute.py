"""Replies that no ZooKeeper server sends: refused as such, however long they say they are."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kazoo.exceptions import MarshallingError

from migrator.zookeeper.jute import GET_CHILDREN, GET_DATA, Multi, MultiRead, Read
from migrator.zookeeper.ops import Create

ENDLESS = struct.pack(">ii", 2**31 - 1, -4)
"""Two thousand million names, each of which ends where it begins."""
HEAD = struct.pack(">i?i", GET_CHILDREN, False, 0)


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (Read(GET_CHILDREN, "/a", ""), ENDLESS),
        (MultiRead(GET_CHILDREN, ["/a"], ""), HEAD + ENDLESS),
        (Read(GET_CHILDREN, "/a", ""), struct.pack(">ii", 1, 2**31 - 1) + b"name"),
        (Read(GET_CHILDREN, "/a", ""), struct.pack(">ii", 1, 1) + b"\xff"),
        (Read(GET_DATA, "/a", ""), struct.pack(">i", 2**31 - 1) + bytes(100)),
        (Read(GET_DATA, "/a", ""), struct.pack(">i", -2) + bytes(100)),
        (Read(GET_DATA, "/a", ""), struct.pack(">i", -1) + bytes(10)),
        (Multi([Create("/a", b"")], "", lambda _: ()), struct.pack(">i?ii", 1, False, 0, -3)),
    ],
)
def test_what_is_no_reply_is_refused(request_: Any, reply: bytes) -> None:
    with pytest.raises(MarshallingError):
        request_.deserialize(reply, 0)


def test_data_that_is_missing_is_told_from_data_that_is_empty() -> None:
    found = [Read(GET_DATA, "/a", "").deserialize(struct.pack(">i", length) + bytes(68), 0) for length in (-1, 0)]
    assert [znode.data for znode in found if not isinstance(znode, int | tuple)] == [None, b""]
