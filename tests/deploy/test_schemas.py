"""Files for Kubernetes, Docker Compose, GitHub and GitLab follow the published schemas."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from tests.conftest import OUTSIDE_ZOOKEEPER
from tests.deploy.test_files import DEPLOY, ROOT

OLDEST, NEWEST = "1.25", kubernetes_validate.latest_version()
"""Of Kubernetes: the oldest release whose schema is published with the package, and the newest."""
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
OBJECTS: list[dict[str, Any]] = [
    each for file in MANIFESTS for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_takes_each_object_and_knows_each_of_its_fields(version: str) -> None:
    for each in OBJECTS:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("field", ["serviceName", "updateStrategie"])
def test_a_field_that_is_missing_or_misspelt_is_found(field: str) -> None:
    broken = copy.deepcopy(next(each for each in OBJECTS if each["kind"] == "StatefulSet"))
    if field in broken["spec"]:
        broken["spec"][field] = 7
    else:
        broken["spec"][field] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, NEWEST, strict=True)


def judged(schema: str, *files: Path) -> str:
    """ "" if all of these keep to a schema that comes with check-jsonschema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_github_takes_the_workflow() -> None:
    assert judged("github-workflows", *(ROOT / ".github/workflows").glob("*.yml")) == ""


def test_renovate_takes_its_file_and_finds_the_locks() -> None:
    """Of which it would not know the names by itself."""
    file = ROOT / ".github/renovate.json"
    assert judged("renovate", file) == ""
    patterns = json.loads(file.read_text(encoding="utf-8"))["pip_requirements"]["managerFilePatterns"]
    found = {
        lock
        for lock in ("requirements.lock", ".github/sbom-requirements.lock", "deploy/drill.lock")
        if any(re.search(pattern.strip("/"), lock) for pattern in patterns)
    }
    assert found == {"requirements.lock", ".github/sbom-requirements.lock"}, "the others are parts of the first"


def test_gitlab_takes_the_job_that_the_page_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8").partition("\n### GitLab\n")[2]
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    job = tmp_path / ".gitlab-ci.yml"
    job.write_text(shown, encoding="utf-8")
    assert judged("gitlab-ci", job) == ""
    job.write_text(shown.replace("script:", "scripts:"), encoding="utf-8")
    assert judged("gitlab-ci", job) != ""


def test_what_calls_continuous_integration_calls_the_same() -> None:
    """With the address of its ZooKeeper, which `.ci/run` takes, and no list of steps of its own."""
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    github = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    steps = [step for step in github["jobs"]["check-and-test"]["steps"] if "run" in step]
    zookeeper = steps[0]["env"]["OUTSIDE_ZOOKEEPER"]
    main_job = f'make drill ARGS="--zookeeper {zookeeper}/main-job"'
    assert [step["run"] for step in steps] == ["bash .ci/run", main_job]
    assert f"- run: {main_job}\n" in page
    run = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for name in (*steps[0]["env"], "OUTSIDE_ZOOKEEPER"):
        assert f"${{{name}:-}}" in run
        assert name in page
    assert f'"{OUTSIDE_ZOOKEEPER}=' in run


def test_a_workflow_with_a_misspelt_key_is_found(tmp_path: Path) -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    (tmp_path / "ci.yml").write_text(text.replace("runs-on:", "run-on:", 1), encoding="utf-8")
    assert "check-and-test" in judged("github-workflows", tmp_path / "ci.yml")
