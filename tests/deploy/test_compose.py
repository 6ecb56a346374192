"""The Compose file and the migration that docs/compose.md walks through with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from migrator.config.load import load_settings
from tests.deploy.test_files import DEPLOY, ROOT, entry_point
from tests.deploy.test_schemas import judged

COMPOSE = DEPLOY / "compose"
FILE = COMPOSE / "compose.yaml"
PAGE = (ROOT / "docs/compose.md").read_text(encoding="utf-8")
CONTENT: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = CONTENT["services"]
BROKERS = [name for name in SERVICES if name.startswith("kafka-")]
CONTROLLERS = [name for name in SERVICES if name.startswith("controller-")]


def test_compose_takes_the_file(tmp_path: Path) -> None:
    assert judged("compose-spec", FILE) == ""
    broken = tmp_path / "compose.yaml"
    broken.write_text(FILE.read_text(encoding="utf-8").replace("depends_on", "depend_on"), encoding="utf-8")
    assert "depend_on" in judged("compose-spec", broken)


def test_every_file_and_volume_that_is_mounted_is_there() -> None:
    for service in SERVICES.values():
        for source, target, *_ in (volume.split(":") for volume in service.get("volumes", [])):
            assert target.startswith("/")
            assert (COMPOSE / source).exists() if source.startswith(".") else source in CONTENT["volumes"]


def test_only_this_machine_reaches_it_and_the_controllers_have_no_rights_to_lose() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) == 2
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert not any({"privileged", "network_mode", "pid"} & service.keys() for service in SERVICES.values())
    for name in CONTROLLERS:
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["profiles"] == ["controllers"]
        assert f"migrator={entry_point()};" in service["command"][0]


def test_nobody_logs_in_to_grafana() -> None:
    """Not with its form, and not with the header of HTTP's basic authentication: its administrator has a password that
    everybody knows."""
    said = SERVICES["grafana"]["environment"]
    assert said["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert (said.get("GF_AUTH_DISABLE_LOGIN_FORM"), said.get("GF_AUTH_BASIC_ENABLED")) == ("true", "false")


def test_a_volume_of_a_controller_belongs_to_its_user() -> None:
    """Docker gives a new volume to whom the directory of the image belongs."""
    image = (DEPLOY / "docker/Dockerfile").read_text(encoding="utf-8")
    assert "install --directory --owner=1001 --group=1001 --mode=0700 /var/lib/kafka" in image
    assert all(volume.endswith(":/var/lib/kafka") for name in CONTROLLERS for volume in SERVICES[name]["volumes"][1:])


def started(file: Path, service: str) -> dict[str, str]:
    """The properties that a container has, after the `sed` of its command."""
    edit = re.search(r'sed "(s/\w+/)\$\$(\w+)/"', SERVICES[service]["command"][0])
    assert edit is not None
    name = edit[1].split("/")[1]
    assert name == edit[2], "what is replaced is a variable of the container"
    text = file.read_text(encoding="utf-8").replace(name, SERVICES[service]["environment"][name])
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines), "no key stands there twice"
    return found


def edits() -> list[str]:
    """The changes of the property files, in the order of the page."""
    return re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def walk(tmp_path: Path) -> Path:
    for name in ("server.properties", "controller.properties"):
        shutil.copy(COMPOSE / name, tmp_path)
    return tmp_path


def do(edit: str, where: Path) -> None:
    subprocess.run(["bash", "-ec", edit], cwd=where, check=True)


def test_the_controllers_are_the_voters_that_every_file_names(walk: Path) -> None:
    do(edits()[0], walk)
    voters = [f"{SERVICES[name]['environment']['NODE_ID']}@{name}:9093" for name in CONTROLLERS]
    for name in CONTROLLERS:
        properties = started(walk / "controller.properties", name)
        assert properties["controller.quorum.voters"].split(",") == voters
        file = walk / f"{name}.properties"
        file.write_text("".join(f"{key}={text}\n" for key, text in properties.items()), encoding="utf-8")
        settings, _ = load_settings(file)
        assert settings.node_id == int(SERVICES[name]["environment"]["NODE_ID"])
        assert settings.zookeeper_metadata_migration_enable
    assert [started(walk / "server.properties", name)["controller.quorum.voters"] for name in BROKERS] == [
        ",".join(voters)
    ] * len(BROKERS)
    scraped = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    assert scraped[0]["static_configs"][0]["targets"] == [f"{name}:9404" for name in CONTROLLERS]


def test_the_page_takes_the_files_from_zookeeper_to_kraft(walk: Path) -> None:
    """Every change of the page is made; what a broker and a controller then have is what Kafka's manual asks for."""
    join, kraft, finish = edits()
    server, controller = walk / "server.properties", walk / "controller.properties"
    before = [started(server, name) for name in BROKERS]
    assert all(not any(key.startswith("controller.") for key in each) for each in before)
    do(join, walk)
    for name, old in zip(BROKERS, before, strict=True):
        joined = started(server, name)
        assert joined.keys() - old.keys() == {
            "zookeeper.metadata.migration.enable", "controller.quorum.voters", "controller.listener.names"
        }  # fmt: skip
        assert f"{joined['controller.listener.names']}:PLAINTEXT" in joined["listener.security.protocol.map"]
        assert joined["inter.broker.protocol.version"] >= "3.4"
    do(kraft, walk)
    for name in BROKERS:
        last = started(server, name)
        assert (last["process.roles"], last["node.id"]) == ("broker", SERVICES[name]["environment"]["BROKER_ID"])
        assert not any(key.startswith("zookeeper") or key == "broker.id" for key in last)
        assert "inter.broker.protocol.version" not in last
    do(finish, walk)
    for name in CONTROLLERS:
        assert not any(key.startswith("zookeeper") for key in started(controller, name))


def test_the_page_names_services_that_there_are() -> None:
    named = set(re.findall(r"docker compose (?:restart|exec(?: -T)?|stop) (\S+)", PAGE))
    assert named
    assert named <= SERVICES.keys()
