"""Pages of made-up verdicts; ``python -m tests.verify.support.sample_pages`` makes the picture in docs/verify.md."""

from __future__ import annotations

import hashlib
import struct
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from migrator.observe.pages.template import write
from migrator.verify.comparison import Comparison, Difference, KindCounts
from migrator.verify.history import HistoryEntry
from migrator.verify.named import Sources
from migrator.verify.page import About, render
from migrator.verify.recheck import Pair
from migrator.verify.verdict import Verdict, next_step
from tests.verify.support.chromium import DESK, View, browser

PICTURE = Path(__file__).parents[3] / "docs" / "verify.png"
MADE_OF = b"Page\0sha256 "
NOW_MS = 1_790_000_000_000
EVIL = "<script>document.title='broken in'</script>\"'&"
COUNTS = {
    "topic": KindCounts(2_000, 2_000, 0, 0, 1),
    "partition": KindCounts(1_000_000, 999_997, 3, 0, 1),
    "config": KindCounts(312, 313, 0, 1, 0),
    "quota": KindCounts(40, 40, 0, 0, 0),
    "scram": KindCounts(12, 12, 0, 0, 0),
    "acl": KindCounts(640, 639, 1, 0, 0),
    "producer ids": KindCounts(1, 1, 0, 0, 0),
    "token": KindCounts(0, 0, 0, 0, 0),
}
ZXID = 0x1A_0000_4C2F


def found(topic: str) -> tuple[Difference, ...]:
    return (
        Difference("acl", "literal Topic:orders", "User:alice Allow Read from *", "", None, ZXID),
        Difference("config", "topic:payments", "retention.ms", None, "604800000", ZXID),
        Difference("partition", "orders-3", "leader_epoch", "7", "8", ZXID + 8),
        *(Difference("partition", "clicks-11", field, "1,2,3", None, ZXID) for field in ("isr", "replicas", "leader")),
        Difference("topic", topic, "id", "oB3vJQ7PQbWg5J9r1uTzXw", "y5m2m3oRS8-1kC0y8Yx0fA", ZXID),
    )


FOUND = found(EVIL)
DIFFERENT = Verdict(
    Comparison(COUNTS, FOUND),
    21.3,
    Pair(ZXID + 8, 1_204_311),
    read_again=31,
    lag=4,
    cluster_id="MkU3OEVBNTcwNTJENDM2Qk",
)
EQUAL = Verdict(
    Comparison({kind: KindCounts(c.kraft, c.kraft, 0, 0, 0) for kind, c in COUNTS.items()}, ()),
    20.1,
    DIFFERENT.at,
    lag=2,
    cluster_id=DIFFERENT.cluster_id,
)
UNDECIDED = replace(EQUAL, undecided=FOUND[2:3], why="ZooKeeper follows the log only to offset 7")
SOURCES = Sources(
    zookeeper="zk1:2181,zk2:2181,zk3:2181/kafka", metadata="/var/lib/kafka/metadata", config="c.properties"
)
HISTORY = [
    HistoryEntry(
        NOW_MS - (40 - step) * 60_000, "different" if 18 < step < 24 else "could not tell" if step == 9 else "equal",
        step, step, None if step == 9 else (step * 7919) % 40 + (400 if 8 < step < 12 else 0), 100,
        5 if 18 < step < 24 else 0, 0, 0, 20.0, "no controller answers" if step == 9 else "",
    )
    for step in range(40)
]  # fmt: skip


def about(verdict: Verdict, sources: Sources = SOURCES) -> About:
    labels = {"ZooKeeper": sources.zookeeper or "", "Metadata log": sources.metadata or ""}
    return About(labels, "controller-1.example.com", "1.0.0", next_step(verdict, sources))


def page(verdict: Verdict, history: Sequence[HistoryEntry] = ()) -> str:
    return render(verdict, about(verdict), history, NOW_MS)


def pictured() -> str:
    """The page that docs/verify.md shows."""
    return page(replace(DIFFERENT, comparison=Comparison(COUNTS, found("payments"))), HISTORY)


def digest(text: str) -> bytes:
    """Of a page, as the picture holds it: whoever changes the page has to make the picture anew."""
    return MADE_OF + hashlib.sha256(text.encode()).hexdigest().encode()


def _with_note(png: bytes, note: bytes) -> bytes:
    """A PNG with a text chunk before its end."""
    body = b"tEXt" + note
    chunk = struct.pack(">I", len(note)) + body + struct.pack(">I", zlib.crc32(body))
    return png[:-12] + chunk + png[-12:]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, browser(Path(directory) / "profile") as tab:
        write(Path(directory) / "verify.html", pictured())
        tab.look(View(*DESK))
        tab.open(Path(directory) / "verify.html")
        PICTURE.write_bytes(_with_note(tab.screenshot(), digest(pictured())))
