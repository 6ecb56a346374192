"""deploy/kubernetes/verify.yaml: `migrator verify` in a pod of its own, which can do its work and kills nobody."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from migrator.cli.verify import _request, command
from migrator.config.load import load_settings
from migrator.verify.kraft.observed import is_address, observed
from migrator.verify.named import Sources
from migrator.verify.spark.session import _DEFAULTS
from tests.deploy.test_files import Kubernetes, entry_point
from tests.deploy.test_kubernetes_page import BY_NAME, CONTROLLERS, PAGE
from tests.deploy.test_schemas import OBJECTS

NAME = "kafka-verify"
UNITS = {"Mi": 1, "Gi": 1024}
MEASURED_MIB = 3400
"""By `make bench`, with 2,000,000 partitions (docs/bench.md): all processes together."""
JOB = BY_NAME["Job", NAME]["spec"]
POD: dict[str, Any] = JOB["template"]["spec"]
CONTROLLER: dict[str, Any] = BY_NAME["StatefulSet", CONTROLLERS]["spec"]["template"]["spec"]


def mebibytes(text: str) -> int:
    return int(text[:-2]) * UNITS[text[-2:]]


def words() -> list[str]:
    """What the job runs at last, behind `exec`."""
    (container,) = POD["containers"]
    word, *rest = shlex.split(container["args"][0].splitlines()[-1])
    assert word == "exec"
    return rest


def options() -> dict[str, Any]:
    """As the command understands them."""
    program, name, *arguments = words()
    assert (program, name) == (shlex.split(entry_point())[0], "verify")
    arguments[arguments.index("-c") + 1] = "/dev/null"  # the option looks whether there is such a file
    return command.make_context(name, arguments).params


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Kubernetes().properties(tmp_path)


def test_it_reads_the_log_of_all_controllers_with_their_certificate(file: Path) -> None:
    settings = load_settings(file)[0]
    metadata = options()["directory"]
    assert is_address(metadata)
    voters = [entry.partition("@")[2] for entry in settings.controller_quorum_voters]
    assert metadata.split(",") == voters
    assert observed(metadata, str(file)).security.client_context is not None, "TLS"
    request = _request(Sources(None, (), None, metadata, str(file), None), options()["master"], options()["conf"])
    assert request.sources.live, "ZooKeeper is that of the file"


def test_its_property_file_is_that_of_the_controllers_made_in_the_same_way() -> None:
    (container,) = POD["containers"]
    script = container["args"][0].splitlines()
    assert script[0] == "umask 077"
    assert re.fullmatch(
        r'sed "s/NODE_ID/3000/" /etc/kafka-template/controller\.properties > /etc/kafka/controller\.properties',
        script[1],
    )
    assert words()[words().index("-c") + 1] == "/etc/kafka/controller.properties"
    theirs = {each["mountPath"]: each for each in CONTROLLER["containers"][0]["volumeMounts"]}
    mine = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mine == {path: each for path, each in theirs.items() if path != "/var/lib/kafka"}
    volumes = {each["name"]: each for each in CONTROLLER["volumes"]}
    assert [each for each in POD["volumes"] if each != volumes[each["name"]]] == [
        {"name": "temporary", "emptyDir": {"sizeLimit": "10Gi"}}
    ], "on disk: Spark keeps there what does not fit into memory"


def test_it_has_the_memory_and_the_processors_that_spark_takes() -> None:
    (container,) = POD["containers"]
    resources = container["resources"]
    limit = mebibytes(resources["limits"]["memory"])
    heap = int(_DEFAULTS["spark.driver.memory"].removesuffix("g")) * 1024
    assert limit >= max(MEASURED_MIB, heap + 1024)
    assert limit == mebibytes(resources["requests"]["memory"]), "it is not the first that a full node kills"
    assert options()["master"] == f"local[{resources['limits']['cpu']}]"


def test_it_is_as_confined_as_a_controller_and_runs_once() -> None:
    for key in ("securityContext", "automountServiceAccountToken", "enableServiceLinks"):
        assert POD[key] == CONTROLLER[key], key
    (container,) = POD["containers"]
    assert container["securityContext"] == CONTROLLER["containers"][0]["securityContext"]
    assert container["image"] == CONTROLLER["containers"][0]["image"]
    assert (JOB["backoffLimit"], POD["restartPolicy"]) == (0, "Never"), "a verdict is no failure to try again"
    assert JOB["activeDeadlineSeconds"]
    rules = POD["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert rules[0]["podAffinityTerm"]["labelSelector"] == BY_NAME["StatefulSet", CONTROLLERS]["spec"]["selector"]


def test_the_network_lets_it_to_both_sides_and_nobody_to_it() -> None:
    labels = JOB["template"]["metadata"]["labels"]
    mine = BY_NAME["NetworkPolicy", NAME]["spec"]
    theirs = BY_NAME["NetworkPolicy", CONTROLLERS]["spec"]
    assert mine["podSelector"]["matchLabels"] == labels
    assert {"podSelector": {"matchLabels": labels}} in theirs["ingress"][0]["from"]
    assert mine["ingress"] == []
    assert set(mine["policyTypes"]) == {"Ingress", "Egress"}
    brokers = {"app": "kafka-brokers"}
    assert mine["egress"] == [
        rule for rule in theirs["egress"] if rule["to"][0].get("podSelector", {}).get("matchLabels") != brokers
    ], "all but the brokers"


def test_no_other_pod_has_its_label_and_the_page_runs_it_nowhere_else() -> None:
    for each in OBJECTS:
        if each["kind"] == "StatefulSet":
            assert each["spec"]["template"]["metadata"]["labels"] != JOB["template"]["metadata"]["labels"]
    assert re.findall(r"kubectl exec .*migrator (?:verify|rehearse)", PAGE) == []
    assert "**Never run `migrator verify` or `migrator rehearse` with `kubectl exec`" in PAGE
    compare = PAGE.partition("## Compare both sides")[2].partition("\n## ")[0]
    assert f"kubectl logs -f job/{NAME}" in compare
    assert "(#compare-both-sides)" in PAGE.partition("\n## 2.")[2].partition("\n## ")[0]
