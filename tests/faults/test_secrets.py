"""A controller runs with secrets in its file: neither its output nor its journal nor its status shows one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.drill.cluster import MIGRATOR, ControllerProcess, controller_properties
from migrator.parts.processes import free_port, run_to_end
from tests.patience import PATIENCE_SECONDS

MARK = "Pl4nted-Secret"
NODE = 3000
PLAIN = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{MARK}" user_u="{MARK}";'
)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    properties = controller_properties(NODE, {NODE: free_port()}) | {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": PLAIN,
        "listener.name.controller.ssl.key.password": MARK,
        "password.encoder.secret": MARK,
        "delegation.token.secret.key": MARK,
        "com.example.password": MARK,
    }
    found = ControllerProcess(NODE, tmp_path / "controllerf", properties)
    yield found
    found.kill()


def test_a_running_controller_tells_no_secret(controller: ControllerProcess) -> None:
    controller.format()
    controller.start()
    assert controller.process is not None
    controller.process.wait_for_output(f"Controller {NODE} is ready for requests", timeout_seconds=PATIENCE_SECONDS)
    status = [MIGRATOR, "status", "-c", str(controller.property_file)]
    said = [run_to_end("status", [*status, *more], timeout_seconds=PATIENCE_SECONDS) for more in ([], ["--json"])]
    assert controller.stop() == 0
    said.append(controller.process.output_text())
    assert all(said)
    assert "com.example.password" in said[-1], "warnings name keys"
    assert not re.search(MARK, "".join(said))
    written = [path for path in controller.directory.rglob("*") if path.is_file() and path != controller.property_file]
    assert any("journal" in path.name for path in written)
    assert not [path for path in written if MARK.encode() in path.read_bytes()]
