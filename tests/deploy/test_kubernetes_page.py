"""docs/kubernetes.md sets and restarts the very objects of deploy/kubernetes."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from migrator.config.load import load_settings
from tests.deploy.test_files import ROOT, Kubernetes
from tests.deploy.test_schemas import NEWEST, OBJECTS

PAGE = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
BY_NAME = {(each["kind"], each["metadata"]["name"]): each for each in OBJECTS}
BROKERS, CONTROLLERS = "kafka-brokers", "kafka-controllers"


def edits() -> list[str]:
    """The changes of the property files, in the order of the page."""
    return re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def properties_of(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines), "no key stands there twice"
    return found


def do(edit: str, where: Path) -> None:
    subprocess.run(["bash", "-ec", edit], cwd=where, check=True)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, which is what the patches of the page need of Kubernetes's merge."""
    if not isinstance(patch, Mapping):
        return patch
    return {**target, **{key: merged(target.get(key, {}), part) for key, part in patch.items()}}


def test_the_page_names_objects_and_files_that_there_are() -> None:
    named = set(re.findall(r"kubectl (?:get|create|patch|rollout \w+) (configmap|statefulset) (\S+)", PAGE))
    kinds = {"configmap": "ConfigMap", "statefulset": "StatefulSet"}
    assert named
    assert {(kinds[kind], name) for kind, name in named} <= BY_NAME.keys()
    for name, key in re.findall(r"get configmap (\S+) -o jsonpath='\{\.data\.([\w\\.]+)\}'", PAGE):
        assert key.replace("\\", "") in BY_NAME["ConfigMap", name]["data"]
    for name in re.findall(r"kubectl (?:apply -f|create -f) (\w\S+)", PAGE):
        assert (ROOT / "deploy/kubernetes" / name).exists()
    for pod in re.findall(r"(?:delete pod|exec) (\S+?)[ `]", PAGE):
        name, _, number = pod.rpartition("-")
        assert int(number) < BY_NAME["StatefulSet", name]["spec"]["replicas"]


def test_the_patches_hold_back_one_broker_after_the_other() -> None:
    brokers = BY_NAME["StatefulSet", BROKERS]
    partitions = []
    for text in re.findall(r"kubectl patch statefulset \S+ -p '(.*)'", PAGE):
        patched = merged(copy.deepcopy(brokers), json.loads(text))
        kubernetes_validate.validate(patched, NEWEST, strict=True)
        partitions.append(patched["spec"]["updateStrategy"]["rollingUpdate"]["partition"])
    assert partitions == list(reversed(range(brokers["spec"]["replicas"])))


def test_the_brokers_fit_the_controllers() -> None:
    pod = BY_NAME["StatefulSet", BROKERS]["spec"]["template"]
    policy = BY_NAME["NetworkPolicy", CONTROLLERS]["spec"]
    let_in = [source["podSelector"]["matchLabels"] for source in policy["ingress"][0]["from"]]
    assert pod["metadata"]["labels"] in let_in
    mounted = {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    text = BY_NAME["ConfigMap", BROKERS]["data"]["server.properties"]
    assert {str(Path(path).parent) for path in re.findall(r"=(/etc/\S+)", text)} <= mounted
    broker, controller = (
        dict(line.split("=", 1) for line in BY_NAME["ConfigMap", name]["data"][file].splitlines() if "=" in line)
        for name, file in ((BROKERS, "server.properties"), (CONTROLLERS, "controller.properties"))
    )
    for key in ("super.users", "zookeeper.connect", "zookeeper.set.acl", "inter.broker.listener.name",
                "ssl.principal.mapping.rules"):  # fmt: skip
        assert broker[key] == controller[key], key
    protocols = [set(each["listener.security.protocol.map"].split(",")) for each in (broker, controller)]
    assert protocols[0] == protocols[1]


def test_the_page_takes_the_brokers_to_kraft(tmp_path: Path) -> None:
    join, kraft, _ = edits()
    file = tmp_path / "server.properties"
    file.write_text(BY_NAME["ConfigMap", BROKERS]["data"]["server.properties"], encoding="utf-8")
    before = properties_of(file)
    do(join, tmp_path)
    joined = properties_of(file)
    assert joined.keys() - before.keys() == {
        "zookeeper.metadata.migration.enable", "controller.quorum.voters", "controller.listener.names"
    }  # fmt: skip
    controller = BY_NAME["ConfigMap", CONTROLLERS]["data"]["controller.properties"]
    assert f"controller.quorum.voters={joined['controller.quorum.voters']}\n" in controller
    do(kraft, tmp_path)
    last = properties_of(file)
    assert (last["process.roles"], last["node.id"]) == ("broker", "BROKER_ID")
    assert last["authorizer.class.name"] == "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert not any(key.startswith("zookeeper") or key in ("broker.id", "inter.broker.protocol.version") for key in last)


@pytest.mark.parametrize("is_done", [False, True])
def test_the_last_step_turns_the_migration_off_on_the_controllers(tmp_path: Path, is_done: bool) -> None:
    file = Kubernetes().properties(tmp_path)
    if is_done:
        do(edits()[-1], tmp_path)
    assert load_settings(file)[0].zookeeper_metadata_migration_enable is not is_done
