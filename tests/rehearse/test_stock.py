"""The stock controller of a rehearsal: it stands on a copy of every secret, on a machine that others may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from migrator.drill.cluster import CLUSTER_ID
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import port_is_open
from migrator.rehearse.stock import controller_of_copy
from tests.doors.caller import Caller, Login, Outcome
from tests.patience import PATIENCE_SECONDS

NODE_ID = 3000
FETCH_SNAPSHOT, DESCRIBE_CONFIGS = 59, 32
CALLS: dict[int, dict[str, Any]] = {
    FETCH_SNAPSHOT: {"max_bytes": 1_000_000, "topics": ()},
    DESCRIBE_CONFIGS: {"resources": ({"resource_type": 4, "resource_name": str(NODE_ID)},)},
}


def test_nobody_else_on_this_machine_gets_in(kafka_391: StockKafka, tmp_path: Path, free_port: int) -> None:
    node = controller_of_copy(kafka_391, tmp_path, free_port, NODE_ID)
    node.format(CLUSTER_ID)
    try:
        node.launch()
        node.process.wait_until(lambda: port_is_open(free_port), "a listener", timeout_seconds=PATIENCE_SECONDS)
        for caller in (Caller(), Caller(login=Login("rehearsal", "guessed"))):
            found = {key: caller.call(free_port, key, 0, fields) for key, fields in CALLS.items()}
            assert set(found.values()) == {Outcome.SHUT}, found
    finally:
        node.kill()
