"""The files in deploy/ fit the tool: paths, commands, ports, keys and metric names are its own."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from migrator.cli.main import COMMANDS, migrator
from migrator.config.keys import KEYS
from migrator.config.load import load_settings
from migrator.config.open_doors import open_doors
from migrator.config.settings import Settings
from migrator.errors import ExitCode
from migrator.observe.metrics import METRICS
from migrator.observe.metrics_endpoint import HEALTH_PATHS
from migrator.parts.certificates import Authority, write_private
from migrator.rollout.journal.figures import ROLLOUT_METRICS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CLUSTER_ID = "XkYOzJkUQQ-rHVYhnWGvTg"
METRIC = re.compile(r"\b(?:kafka|migrator)_[a-z_]+\b")
ORDINAL = 1


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_there_are_and_says_what_to_do(rule: dict[str, Any]) -> None:
    used = set(METRIC.findall(rule["expr"]))
    assert used
    assert used <= METRICS | ROLLOUT_METRICS.keys()
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "description"}
    assert rule["expr"].count("(") == rule["expr"].count(")")


def test_alerts_have_names_of_their_own_and_name_the_bound_of_the_write_behind() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    behind = next(rule for rule in rules() if rule["alert"] == "ZooKeeperFallsBehind")
    key = "migrator.write.behind.max.records"
    assert f"{key} ({KEYS[key].default})" in behind["annotations"]["description"]


class Kubernetes:
    """The example's objects."""

    def __init__(self) -> None:
        objects = list(yaml.safe_load_all((DEPLOY / "kubernetes/controllers.yaml").read_text(encoding="utf-8")))
        self.by_kind: dict[str, dict[str, Any]] = {each["kind"]: each for each in objects}
        assert len(self.by_kind) == len(objects)
        self.set: dict[str, Any] = self.by_kind["StatefulSet"]["spec"]
        self.pod: dict[str, Any] = self.set["template"]["spec"]
        self.template: str = self.by_kind["ConfigMap"]["data"]["controller.properties"]

    def properties(self, directory: Path) -> Path:
        """The property file of pod number `ORDINAL`, with its folders below ``directory``."""
        mounts = {
            "/var/lib/kafka": directory / "data",
            "/etc/kafka-secrets": directory / "secrets",
            "/etc/kafka-tls": directory / "tls",
            "/etc/zookeeper-tls": directory / "zookeeper-tls",
        }
        text = self.template.replace("NODE_ID", str(3000 + ORDINAL))
        for inside, outside in mounts.items():
            assert inside in text
            assert inside in {mount["mountPath"] for mount in self.pod["containers"][0]["volumeMounts"]}
            outside.mkdir()
            text = text.replace(inside, str(outside))
        for name in ("password-encoder-secret", "delegation-token-secret-key"):
            (directory / "secrets" / name).write_text("secret")
        (directory / "secrets/metrics-passwords").write_text("prometheus:secret\n")
        for secret in (directory / "secrets").iterdir():
            secret.chmod(0o440)
        authority = Authority("ca")
        own = f"tls/{3000 + ORDINAL}"
        for folder, owner in {own: f"kafka-controllers-{ORDINAL}", "zookeeper-tls": "kafka-brokers"}.items():
            (directory / folder).mkdir(exist_ok=True)
            key, certificate = authority.issue(owner)
            for name, content in {
                "tls-combined.pem": key + certificate,
                "tls.key": key,
                "tls.crt": certificate,
                "ca.crt": authority.pem,
            }.items():
                write_private(directory / folder / name, content)
                (directory / folder / name).chmod(0o440)
        file = directory / "controller.properties"
        file.write_text(text)
        return file


@pytest.fixture
def kubernetes() -> Kubernetes:
    return Kubernetes()


def test_the_pods_are_the_voters_that_their_properties_name(kubernetes: Kubernetes, tmp_path: Path) -> None:
    settings, warnings = load_settings(kubernetes.properties(tmp_path))
    name = kubernetes.by_kind["StatefulSet"]["metadata"]["name"]
    service = kubernetes.set["serviceName"]
    assert service == kubernetes.by_kind["Service"]["metadata"]["name"]
    pods = [f"{3000 + number}@{name}-{number}.{service}:9093" for number in range(kubernetes.set["replicas"])]
    assert list(settings.controller_quorum_voters) == pods
    assert settings.node_id == 3000 + ORDINAL
    doors = tuple(f"{settings.source}: {key}: " for key, _, _ in open_doors(settings))
    assert [warning for warning in warnings if not warning.startswith(doors)] == []


def test_ports_are_those_of_the_listeners(kubernetes: Kubernetes, tmp_path: Path) -> None:
    settings = load_settings(kubernetes.properties(tmp_path))[0]
    (container,) = kubernetes.pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {port["name"]: port["port"] for port in kubernetes.by_kind["Service"]["spec"]["ports"]}
    assert settings.listeners == f"CONTROLLER://:{ports['controller']}"
    assert settings.migrator_metrics_listener == f"0.0.0.0:{ports['metrics']}"
    for probe, path in (("readinessProbe", "/ready"), ("livenessProbe", "/health")):
        assert container[probe]["httpGet"] == {"path": path, "port": "metrics", "scheme": "HTTPS"}
        assert path in HEALTH_PATHS
    assert settings.migrator_metrics_tls_certificate_file
    assert not settings.migrator_metrics_tls_ca_file, "the kubelet shows no certificate"


def test_a_stopping_pod_has_time_to_drain(kubernetes: Kubernetes, tmp_path: Path) -> None:
    settings: Settings = load_settings(kubernetes.properties(tmp_path))[0]
    assert kubernetes.pod["terminationGracePeriodSeconds"] * 1000 > 2 * settings.migrator_write_behind_drain_ms


def test_the_init_container_formats_and_does_so_again(kubernetes: Kubernetes, tmp_path: Path) -> None:
    file = kubernetes.properties(tmp_path)
    script = kubernetes.pod["initContainers"][0]["args"][0].splitlines()[-1]
    program, *arguments = shlex.split(script.replace("$CLUSTER_ID", CLUSTER_ID))
    assert program == shlex.split(entry_point())[0]
    here = [str(file) if argument == "/etc/kafka/controller.properties" else argument for argument in arguments]
    first, second = (CliRunner().invoke(migrator, here, catch_exceptions=False) for _ in range(2))
    assert first.exit_code == second.exit_code == 0
    assert "Formatted" in first.output
    assert "already formatted" in second.output


def test_what_the_pods_run_is_a_command(kubernetes: Kubernetes) -> None:
    (container,) = kubernetes.pod["containers"]
    assert container["args"][0] in COMMANDS
    assert container["args"][1:] == ["-c", "/etc/kafka/controller.properties"]


def dockerfile() -> list[list[str]]:
    """Instructions, continued lines joined."""
    text = (DEPLOY / "docker/Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]


def stages() -> dict[str, list[list[str]]]:
    """Instructions of the Dockerfile by stage, ``FROM`` first."""
    found: dict[str, list[list[str]]] = {}
    for name, rest in dockerfile():
        if name == "FROM":
            found[rest.split()[-1]] = []
        if found:
            found[list(found)[-1]].append([name, rest])
    return found


def entry_point() -> str:
    text = next(rest for name, rest in dockerfile() if name == "ENTRYPOINT")
    return " ".join(yaml.safe_load(text))


def test_the_image_is_made_of_files_that_there_are() -> None:
    kept = {line[1:] for line in ignore_lines() if line.startswith("!")}
    copied = {
        source for name, rest in dockerfile() if name == "COPY" and "--" not in rest for source in rest.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / source).exists() for source in copied)
    assert "migrator/rpc/stubs/*_pb2*" in ignore_lines()  # made anew inside


def ignore_lines() -> list[str]:
    return (DEPLOY / "docker/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()


def systemd_unit() -> configparser.ConfigParser:
    """Of a key that is given twice, the last value."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign, assignment]  # keys keep their case
    unit.read(DEPLOY / "systemd/kraft-migrator.service", encoding="utf-8")
    return unit


def test_image_and_service_start_the_same_program() -> None:
    unit = systemd_unit()
    workdir = [rest for name, rest in dockerfile() if name == "WORKDIR"][-1]
    command = yaml.safe_load(next(rest for name, rest in stages()["controller"] if name == "CMD"))
    assert entry_point() == f"{workdir}/.venv/bin/migrator"
    assert unit["Service"]["ExecStart"].split() == [entry_point(), *command]
    for_people = {ExitCode.REFUSED, ExitCode.NOT_DRAINED, ExitCode.DEFECT}
    assert {int(code) for code in unit["Service"]["RestartPreventExitStatus"].split()} == for_people
    assert int(unit["Service"]["TimeoutStopSec"]) * 1000 > 2 * int(str(KEYS["migrator.write.behind.drain.ms"].default))
