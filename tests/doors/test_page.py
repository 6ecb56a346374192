"""``docs/security.md`` names every door and every call, and says what each one demands."""

from __future__ import annotations

import re
from pathlib import Path

from migrator.apis.registry import APIS
from migrator.config.load import load_settings
from migrator.parts.certificates import Authority, write_private
from migrator.rpc.identity import DOORS
from migrator.wire.listener_settings import broker_security, controller_security
from migrator.wire.schemas import CONTROLLER_APIS, request_type
from migrator.zookeeper.session import options_from

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (.+) \|$", re.MULTILINE)
CALL = re.compile(r"^\| (\w+)/(\w+) \| (.*) \| (?:`(\w+)` )?\|$", re.MULTILINE)
SAMPLE = re.compile(r"```properties\n(.*?)```", re.DOTALL)
NO_RIGHT = "none"
PASSWORD = "of-the-key"


def test_every_api_has_its_row() -> None:
    rows = {int(key): name for key, name, _ in ROW.findall(PAGE)}
    assert rows == {
        key: request_type(key, served.max).__name__.removesuffix("Request") for key, served in CONTROLLER_APIS.items()
    }


def test_every_row_says_the_right_that_the_registry_demands() -> None:
    for key, name, right in ROW.findall(PAGE):
        needed = APIS[int(key)].cluster_operation
        if needed is not None:
            assert right.startswith(f"{needed.name} on the cluster"), name
        else:
            assert right.startswith(NO_RIGHT) or " on the topic" in right, name


def test_every_call_over_grpc_has_its_row() -> None:
    rows = {
        f"/migrator.{service.lower()}.v1.{service}/{call}": (set(roles.split(", ")), field)
        for service, call, roles, field in CALL.findall(PAGE)
    }
    assert rows == {call: (set(door.roles), door.speaks_as) for call, door in DOORS.items()}


def test_the_hardened_file_works_without_a_warning(tmp_path: Path) -> None:
    (sample,) = SAMPLE.findall(PAGE)
    authority = Authority("sample")
    key, certificate = authority.issue("controller-1", password=PASSWORD)
    pem, pem_key = authority.issue("controller-1")[::-1]
    files = {
        "controller-1.pem": key + certificate,
        "zookeeper-client.pem": key + certificate,
        "grpc-cert.pem": pem,
        "grpc-key.pem": pem_key,
        **dict.fromkeys(("cluster-ca.pem", "controllers-ca.pem", "zookeeper-ca.pem"), authority.pem),
        "secrets.properties": f"key={PASSWORD}\ntokens={PASSWORD}\nencoder={PASSWORD}\n",
        "metrics-users": "prometheus:secret\n",
    }
    assert set(files) == set(re.findall(r"/etc/kraft-migrator/([\w.-]+)", sample))
    for name, text in files.items():
        write_private(tmp_path / name, text)
    path = tmp_path / "controller.properties"
    write_private(path, sample.replace("/etc/kraft-migrator", str(tmp_path)))
    settings, warnings = load_settings(path)
    assert warnings == []
    assert controller_security(settings).server_context is not None
    assert broker_security(settings).client_context is not None
    assert options_from(settings).tls is not None
