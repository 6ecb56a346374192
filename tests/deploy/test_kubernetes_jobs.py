"""verify.yaml and rollback.yaml of deploy/kubernetes: commands in pods of their own, which can work and kill nobody."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from migrator.cli import rollback, verify
from migrator.config.load import load_settings
from migrator.verify.kraft.observed import is_address, observed
from migrator.verify.named import Sources
from migrator.verify.spark.session import _DEFAULTS
from tests.deploy.test_files import Kubernetes, entry_point
from tests.deploy.test_kubernetes_page import BY_NAME, CONTROLLERS, PAGE
from tests.deploy.test_schemas import OBJECTS

VERIFY, ROLLBACK = JOBS = "kafka-verify", "kafka-rollback"
UNITS = {"Mi": 1, "Gi": 1024}
MEASURED_MIB = 3400
"""By `make bench`, with 2,000,000 partitions (docs/bench.md): all processes together."""
SET: dict[str, Any] = BY_NAME["StatefulSet", CONTROLLERS]["spec"]
CONTROLLER: dict[str, Any] = SET["template"]["spec"]
CONFIG = "/etc/kafka/controller.properties"
DATA = "/var/lib/kafka"


def pod_of(job: str) -> dict[str, Any]:
    return BY_NAME["Job", job]["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def labels_of(job: str) -> dict[str, str]:
    return BY_NAME["Job", job]["spec"]["template"]["metadata"]["labels"]  # type: ignore[no-any-return]


def script_of(job: str) -> list[str]:
    (container,) = pod_of(job)["containers"]
    assert container["command"] == ["/bin/sh", "-ec"]
    return container["args"][0].splitlines()  # type: ignore[no-any-return]


def node_id(job: str) -> int:
    """Into the file of which node the script makes that of all."""
    made = re.fullmatch(
        rf'sed "s/NODE_ID/(\d+)/" /etc/kafka-template/controller\.properties > {CONFIG}', script_of(job)[1]
    )
    assert made is not None
    return int(made[1])


def arguments_of(job: str) -> list[str]:
    """The command that replaces the script's process."""
    word, program, name, *arguments = shlex.split(script_of(job)[2])
    assert (word, program, name) == ("exec", shlex.split(entry_point())[0], job.removeprefix("kafka-"))
    assert arguments[arguments.index("-c") + 1] == CONFIG
    return [argument if argument != CONFIG else "/dev/null" for argument in arguments]  # -c looks for the file


def mebibytes(text: str) -> int:
    return int(text[:-2]) * UNITS[text[-2:]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Kubernetes().properties(tmp_path)


@pytest.mark.parametrize("job", JOBS)
def test_its_property_file_is_that_of_the_controllers_and_made_in_the_same_way(job: str) -> None:
    assert script_of(job)[0] == "umask 077"
    assert node_id(job) - 3000 in range(SET["replicas"])
    (container,) = pod_of(job)["containers"]
    theirs = {each["mountPath"]: each for each in CONTROLLER["containers"][0]["volumeMounts"]}
    mine = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mine.items() <= theirs.items()
    assert theirs.keys() - mine.keys() <= {DATA}
    volumes = {each["name"]: each for each in CONTROLLER["volumes"]}
    own = [each for each in pod_of(job)["volumes"] if volumes.get(each["name"]) != each]
    assert [each["name"] for each in own] == ["temporary" if job == VERIFY else "metadata"]


@pytest.mark.parametrize("job", JOBS)
def test_it_is_as_confined_as_a_controller_and_runs_once(job: str) -> None:
    pod = pod_of(job)
    for key in ("securityContext", "automountServiceAccountToken", "enableServiceLinks"):
        assert pod[key] == CONTROLLER[key], key
    (container,) = pod["containers"]
    assert container["securityContext"] == CONTROLLER["containers"][0]["securityContext"]
    theirs = CONTROLLER["containers"][0]["image"]
    assert container["image"] == (f"{theirs}-tools" if job == VERIFY else theirs), "the target of the Dockerfile"
    assert (BY_NAME["Job", job]["spec"]["backoffLimit"], pod["restartPolicy"]) == (0, "Never")


@pytest.mark.parametrize("job", JOBS)
def test_the_network_lets_it_to_controllers_and_zookeeper_and_nobody_to_it(job: str) -> None:
    mine, theirs = (BY_NAME["NetworkPolicy", name]["spec"] for name in (job, CONTROLLERS))
    assert mine["podSelector"]["matchLabels"] == labels_of(job)
    assert {"podSelector": {"matchLabels": labels_of(job)}} in theirs["ingress"][0]["from"]
    assert mine["ingress"] == []
    assert set(mine["policyTypes"]) == {"Ingress", "Egress"}
    brokers = {"app": "kafka-brokers"}
    assert mine["egress"] == [
        rule for rule in theirs["egress"] if rule["to"][0].get("podSelector", {}).get("matchLabels") != brokers
    ], "all but the brokers"


@pytest.mark.parametrize("job", JOBS)
def test_no_other_pod_has_its_label_and_the_page_waits_for_it(job: str) -> None:
    pods = [
        each["spec"]["template"]["metadata"]["labels"] for each in OBJECTS if each["kind"] in ("StatefulSet", "Job")
    ]
    assert pods.count(labels_of(job)) == 1
    file = f"{job.removeprefix('kafka-')}.yaml"
    commands = re.findall(rf"    kubectl (.*(?:{job}|{file}).*)\n", PAGE)
    release = ['patch job kafka-rollback -p \'{"spec": {"suspend": false}}\''] if job == ROLLBACK else []
    assert commands[:4] == [
        f"delete job {job} --ignore-not-found",
        f"apply -f {file}",
        *release,
        f"logs -f job/{job} --pod-running-timeout=5m",
        *([f"get job {job}"] if job == VERIFY else []),
    ]


def test_verify_reads_the_log_of_all_controllers_with_their_certificate(file: Path) -> None:
    settings = load_settings(file)[0]
    options = verify.command.make_context("verify", arguments_of(VERIFY)).params
    metadata = options["directory"]
    assert is_address(metadata)
    assert metadata.split(",") == [entry.partition("@")[2] for entry in settings.controller_quorum_voters]
    assert observed(metadata, str(file)).security.client_context is not None, "TLS"
    sources = Sources(None, (), None, metadata, str(file), None)
    assert verify._request(sources, options["master"], options["conf"]).sources.live, "ZooKeeper is that of the file"


def test_verify_has_the_memory_the_disk_and_the_processors_that_spark_takes() -> None:
    (container,) = pod_of(VERIFY)["containers"]
    resources = container["resources"]
    limit = mebibytes(resources["limits"]["memory"])
    heap = int(_DEFAULTS["spark.driver.memory"].removesuffix("g")) * 1024
    assert limit >= max(MEASURED_MIB, heap + 1024)
    assert limit == mebibytes(resources["requests"]["memory"]), "it is not the first that a full node kills"
    options = verify.command.make_context("verify", arguments_of(VERIFY)).params
    assert options["master"] == f"local[{resources['limits']['cpu']}]"
    (temporary,) = (each for each in pod_of(VERIFY)["volumes"] if each["name"] == "temporary")
    assert temporary["emptyDir"].keys() == {"sizeLimit"}, "on disk: memory would count against the limit"
    rules = pod_of(VERIFY)["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert rules[0]["podAffinityTerm"]["labelSelector"] == SET["selector"]
    assert BY_NAME["Job", VERIFY]["spec"]["activeDeadlineSeconds"]


def test_the_page_runs_spark_in_no_controllers_pod() -> None:
    assert re.findall(r"kubectl exec .*migrator (?:verify|rehearse)", PAGE) == []
    assert "**Never run `migrator verify` or `migrator rehearse` with `kubectl exec`" in PAGE
    for step in ("\n## 2.", "\n## 4."):
        assert "](#compare-both-sides)" in PAGE.partition(step)[2].partition("\n## ")[0]


def test_rollback_reads_the_log_of_one_controller_as_this_one(file: Path) -> None:
    options = rollback.command.make_context("rollback", arguments_of(ROLLBACK)).params
    assert options["yes"], "nobody could answer"
    assert not any(options[name] for name in ("without_log", "accept_loss", "gone"))
    (claim,) = (each["persistentVolumeClaim"]["claimName"] for each in pod_of(ROLLBACK)["volumes"]
                if "persistentVolumeClaim" in each)  # fmt: skip
    (template,) = (each["metadata"]["name"] for each in SET["volumeClaimTemplates"])
    assert claim == f"{template}-{CONTROLLERS}-{node_id(ROLLBACK) - 3000}"
    assert load_settings(file)[0].metadata_directory == file.parent / "data/metadata", "on that volume"
    assert BY_NAME["Job", ROLLBACK]["spec"]["suspend"], "whoever applies the whole folder starts no rollback"
    (container,) = pod_of(ROLLBACK)["containers"]
    assert container["resources"] == CONTROLLER["containers"][0]["resources"]


def test_the_way_back_ends_with_no_volume_of_a_controller() -> None:
    (named,) = re.findall(r"kubectl delete pvc (.*)", PAGE)
    (template,) = (each["metadata"]["name"] for each in SET["volumeClaimTemplates"])
    assert named.split() == [f"{template}-{CONTROLLERS}-{number}" for number in range(SET["replicas"])]
    steps = (
        "gates rollback",
        "--replicas=0",
        "apply -f rollback.yaml",
        "`--replicas=3`",
        "file `kafka-brokers`",
        "delete pvc",
    )
    places = [PAGE.index(step) for step in steps]
    assert places == sorted(places)
