"""The stock controller of a rehearsal: it stands on a copy of every secret, on a machine that others may use."""

from __future__ import annotations

import re
from pathlib import Path

from migrator.drill.cluster import CLUSTER_ID
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import port_is_open
from migrator.rehearse.stock import controller_of_copy
from tests.doors.support.caller import Caller, Login, Outcome
from tests.patience import PATIENCE_SECONDS

NODE_ID = 3000
DESCRIBE_CONFIGS = 32
QUESTION = {"resources": ({"resource_type": 4, "resource_name": str(NODE_ID), "configuration_keys": None},)}


def test_nobody_else_on_this_machine_gets_in(kafka_391: StockKafka, tmp_path: Path, free_port: int) -> None:
    node = controller_of_copy(kafka_391, tmp_path, free_port, NODE_ID)
    known = re.search('password="(\\w+)"', " ".join(node.properties.values()))
    password = known[1] if known else ""
    node.format(CLUSTER_ID)
    try:
        node.launch()
        node.process.wait_until(lambda: port_is_open(free_port), "a listener", timeout_seconds=PATIENCE_SECONDS)
        found = {
            who: caller.call(free_port, DESCRIBE_CONFIGS, 4, QUESTION)
            for who, caller in {
                "nobody": Caller(),
                "who guesses": Caller(login=Login("rehearsal", "guessed")),
                "the rehearsal": Caller(login=Login("rehearsal", password)),
            }.items()
        }
    finally:
        node.kill()
    assert found == {"nobody": Outcome.SHUT, "who guesses": Outcome.SHUT, "the rehearsal": Outcome.ANSWERED}
