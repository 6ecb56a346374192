"""docs/kubernetes.md sets and restarts the very objects of deploy/kubernetes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from migrator.config.load import load_settings
from tests.deploy.support.stateful_set import StatefulSet
from tests.deploy.test_files import ROOT, Kubernetes
from tests.deploy.test_schemas import NEWEST, OBJECTS

PAGE = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
BY_NAME = {(each["kind"], each["metadata"]["name"]): each for each in OBJECTS}
BROKERS, CONTROLLERS = "kafka-brokers", "kafka-controllers"
MIGRATION, KRAFT, FINISHED = "kafka-brokers-migration", "kafka-brokers-kraft", "kafka-controllers-finished"
FILES = {BROKERS: "server.properties", CONTROLLERS: "controller.properties"}
KINDS = {"configmap": "ConfigMap", "statefulset": "StatefulSet", "job": "Job"}


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


def patches(name: str) -> list[dict[str, Any]]:
    """Of this StatefulSet, in the order of the page."""
    return [json.loads(text) for text in re.findall(rf"kubectl patch statefulset {name} -p '(.*)'", PAGE)]


def named_by(patch: dict[str, Any]) -> str | None:
    volumes = patch["spec"].get("template", {}).get("spec", {}).get("volumes", [])
    return next((str(each["configMap"]["name"]) for each in volumes), None)


def patch_that(name: str, file: str | None, **strategy: object) -> dict[str, Any]:
    """The one patch of the page that names this ConfigMap (None: none), with this of the update strategy."""
    found = [
        each
        for each in patches(name)
        if named_by(each) == file and each["spec"]["updateStrategy"] == strategy
    ]  # fmt: skip
    assert found, f"the page has no patch for {file} with {strategy}"
    return found[0]


def forward(file: str) -> list[dict[str, Any]]:
    """The page's commands that give all brokers this file."""
    first = patch_that(BROKERS, file, rollingUpdate={"partition": 2})
    return [first, *(patch_that(BROKERS, None, rollingUpdate={"partition": number}) for number in (1, 0))]


def back(file: str) -> dict[str, Any]:
    shown = patch_that(BROKERS, BROKERS, type="OnDelete", rollingUpdate=None)
    return json.loads(json.dumps(shown).replace(f'{{"name": "{BROKERS}"}}', f'{{"name": "{file}"}}'))  # type: ignore[no-any-return]


def test_the_page_names_objects_and_files_that_there_are() -> None:
    made = dict(re.findall(r"kubectl create configmap (\S+) --from-file=(\S+?)=", PAGE))
    assert made == {MIGRATION: FILES[BROKERS], KRAFT: FILES[BROKERS], FINISHED: FILES[CONTROLLERS]}
    named = set(re.findall(r"kubectl (?:get|patch|delete|scale|rollout \w+) (configmap|statefulset|job) (\S+)", PAGE))
    assert named
    assert {(KINDS[kind], name) for kind, name in named} <= BY_NAME.keys() | {("ConfigMap", name) for name in made}
    for name, key in re.findall(r"get configmap (\S+) -o jsonpath='\{\.data\.([\w\\.]+)\}'", PAGE):
        assert key.replace("\\", "") in BY_NAME["ConfigMap", name]["data"]
    for name in re.findall(r"kubectl (?:apply -f|create -f) (\w\S+)", PAGE):
        assert (ROOT / "deploy/kubernetes" / name).exists()
    for pod in re.findall(r"(?:delete pod|exec) (\S+?)[ `\n]", PAGE):
        name, _, number = pod.rpartition("-")
        assert int(number) < BY_NAME["StatefulSet", name]["spec"]["replicas"]
    for label in re.findall(r" -l app=(\S+)", PAGE):
        assert ("StatefulSet", label) in BY_NAME


def test_no_step_changes_a_file_to_which_one_goes_back() -> None:
    """A pod reads its ConfigMap whenever it starts: only one that nobody can change holds an old file."""
    assert "| kubectl apply" not in PAGE
    assert "rollout restart" not in PAGE
    frozen = re.findall(r"kubectl patch configmap (\S+) -p '\{\"immutable\": true\}'", PAGE)
    assert sorted(frozen) == sorted([BROKERS, CONTROLLERS, MIGRATION, KRAFT, FINISHED])
    named = {named_by(patch) for name in FILES for patch in patches(name)} - {None}
    assert named == {BROKERS, MIGRATION, KRAFT, FINISHED}


@pytest.mark.parametrize("name", [BROKERS, CONTROLLERS])
def test_kubernetes_takes_each_patch(name: str) -> None:
    shown = patches(name)
    assert shown
    for patch in shown:
        changed = StatefulSet(BY_NAME["StatefulSet", name])
        if "rollingUpdate" not in patch["spec"]["updateStrategy"]:
            changed.patch({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}})
        changed.patch(patch)
        kubernetes_validate.validate(changed.manifest, NEWEST, strict=True)
        volumes = changed.manifest["spec"]["template"]["spec"]["volumes"]
        before = BY_NAME["StatefulSet", name]["spec"]["template"]["spec"]["volumes"]
        assert [each["name"] for each in volumes] == [each["name"] for each in before]


def test_one_broker_after_the_other_gets_the_new_file_and_no_accident_gives_it_to_another() -> None:
    brokers = StatefulSet(BY_NAME["StatefulSet", BROKERS])
    old = BROKERS
    for new in (MIGRATION, KRAFT):
        for done, patch in enumerate(forward(new), 1):
            brokers.patch(patch)
            for number in range(3):
                brokers.delete(number)  # an eviction
            assert brokers.files == [old] * (3 - done) + [new] * done
        old = new


@pytest.mark.parametrize(("old", "new"), [(BROKERS, MIGRATION), (MIGRATION, KRAFT)])
@pytest.mark.parametrize("restarted", [1, 2, 3])
@pytest.mark.parametrize("is_bad", [False, True])
def test_the_way_back_restarts_what_the_operator_deletes_and_nothing_else(
    old: str, new: str, restarted: int, is_bad: bool
) -> None:
    """Also if the last broker to get the file does not come back, or if all had it already."""
    brokers = StatefulSet(BY_NAME["StatefulSet", BROKERS])
    if old == MIGRATION:
        for patch in forward(MIGRATION):
            brokers.patch(patch)
    last = 3 - restarted
    brokers.bad = {(last, new)} if is_bad else set()
    for patch in forward(new)[:restarted]:
        brokers.patch(patch)
    assert brokers.files[last] == new
    brokers.starts.clear()
    brokers.patch(back(old))
    assert brokers.starts == []
    for number in range(last, 3):
        brokers.delete(number)
        assert brokers.files[: number + 1] == [old] * (number + 1)
        for other in range(last):
            brokers.delete(other)  # an eviction
    assert brokers.files == [old] * 3
    brokers.starts.clear()
    brokers.patch(patch_that(BROKERS, None, type="RollingUpdate"))
    assert brokers.starts == []
    brokers.bad.clear()
    brokers.patch(forward(new)[0])
    brokers.delete(0)  # an eviction in the second attempt
    assert brokers.files == [old, old, new]


@pytest.mark.parametrize("leader", [0, 1, 2])
def test_the_controllers_get_their_last_file_in_the_order_of_the_operator(leader: int) -> None:
    controllers = StatefulSet(BY_NAME["StatefulSet", CONTROLLERS])
    controllers.starts.clear()
    controllers.patch(patch_that(CONTROLLERS, FINISHED, type="OnDelete", rollingUpdate=None))
    assert controllers.starts == []
    order = [*(number for number in range(3) if number != leader), leader]
    for number in order:
        controllers.delete(number)
    assert controllers.starts == [(number, FINISHED) for number in order]
    controllers.patch(patch_that(CONTROLLERS, None, type="RollingUpdate"))
    assert controllers.files == [FINISHED] * 3
    assert len(controllers.starts) == 3


def test_the_page_looks_at_the_status_between_two_controllers() -> None:
    """A pod is ready before it takes part in the quorum."""
    finish = PAGE.partition("## 4. Finish")[2]
    deleted = [match.start() for match in re.finditer(r"    kubectl delete pod kafka-controllers-", finish)]
    asked = finish.index("migrator status")
    assert deleted[0] < asked < deleted[1]
    assert "rollout status" not in finish
    assert BY_NAME["StatefulSet", CONTROLLERS]["spec"]["minReadySeconds"] >= 15


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
        for name, file in FILES.items()
    )
    for key in ("super.users", "zookeeper.connect", "zookeeper.set.acl", "inter.broker.listener.name",
                "ssl.principal.mapping.rules"):  # fmt: skip
        assert broker[key] == controller[key], key
    protocols = [set(each["listener.security.protocol.map"].split(",")) for each in (broker, controller)]
    assert protocols[0] == protocols[1]


def zookeeper_identity(pod: dict[str, Any], name: str) -> str:
    """The secret whose certificate this pod shows to ZooKeeper."""
    text = BY_NAME["ConfigMap", name]["data"][FILES[name]]
    (location,) = re.findall(r"^zookeeper\.ssl\.keystore\.location=(\S+)$", text, re.MULTILINE)
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    return str(volumes[mounts[str(Path(location).parent)]]["secret"]["secretName"])


def test_all_have_one_identity_at_zookeeper() -> None:
    """docs/zookeeper-security.md: only the brokers' identity may write, or read users, where they own the znodes."""
    pods = {name: BY_NAME["StatefulSet", name]["spec"]["template"]["spec"] for name in FILES}
    job = BY_NAME["Job", "kafka-verify"]["spec"]["template"]["spec"]
    found = {zookeeper_identity(pod, name) for name, pod in pods.items()} | {zookeeper_identity(job, CONTROLLERS)}
    assert found == {"kafka-brokers-tls"}


@pytest.mark.parametrize("name", [BROKERS, CONTROLLERS])
def test_no_two_of_a_quorum_are_on_one_node(name: str) -> None:
    spec = BY_NAME["StatefulSet", name]["spec"]
    affinity = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"] == spec["selector"]
    assert "remove\n`affinity` from both StatefulSets" in PAGE


@pytest.mark.parametrize("end", ["\n", ""])
def test_the_page_takes_the_brokers_to_kraft(tmp_path: Path, end: str) -> None:
    """Also from a file whose last line does not end, and if a step is done twice."""
    join, kraft, _ = edits()
    file = tmp_path / "server.zookeeper.properties"
    text = BY_NAME["ConfigMap", BROKERS]["data"]["server.properties"]
    file.write_text(text.rstrip("\n") + end, encoding="utf-8")
    before = properties_of(file)
    for _ in range(2):
        do(join, tmp_path)
    joined = properties_of(tmp_path / "server.migration.properties")
    assert joined.keys() - before.keys() == {
        "zookeeper.metadata.migration.enable", "controller.quorum.voters", "controller.listener.names"
    }  # fmt: skip
    assert before.items() <= joined.items()
    controller = BY_NAME["ConfigMap", CONTROLLERS]["data"]["controller.properties"]
    assert f"controller.quorum.voters={joined['controller.quorum.voters']}\n" in controller
    for _ in range(2):
        do(kraft, tmp_path)
    last = properties_of(tmp_path / "server.kraft.properties")
    assert (last["process.roles"], last["node.id"]) == ("broker", "BROKER_ID")
    assert last["authorizer.class.name"] == "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert not any(key.startswith("zookeeper") or key in ("broker.id", "inter.broker.protocol.version") for key in last)
    assert properties_of(file) == before
    assert properties_of(tmp_path / "server.migration.properties") == joined


def test_the_last_step_turns_the_migration_off_on_the_controllers(tmp_path: Path) -> None:
    file = Kubernetes().properties(tmp_path)
    assert load_settings(file)[0].zookeeper_metadata_migration_enable
    file.rename(tmp_path / "controller.migration.properties")
    do(edits()[-1], tmp_path)
    settings, warnings = load_settings(tmp_path / "controller.finished.properties")
    assert not settings.zookeeper_metadata_migration_enable
    assert not settings.zookeeper_connect
    assert warnings == []
