"""`migrator rehearse` as people and scripts meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.errors import ExitCode
from migrator.parts.processes import free_port
from tests.cli.test_main import run as in_this_process
from tests.patience import PATIENCE_SECONDS
from tests.rehearse.conftest import MakeCluster
from tests.rehearse.support.cluster import environment, property_file

MIGRATOR = str(Path(sys.executable).with_name("migrator"))
ALONE = ("--kafka", "none", "--no-spark")


def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment(**changes)
    )


def test_a_report_for_people_and_one_for_scripts(new_cluster: MakeCluster, tmp_path: Path) -> None:
    file = property_file(new_cluster(), tmp_path)
    answer = run(MIGRATOR, "rehearse", "-c", str(file), *ALONE, "--broker-seconds", "20")
    assert answer.returncode == ExitCode.OK, answer.stderr
    assert all(word in answer.stdout for word in ("partitions", "60.0 s", "not checked", "Verdict: fine"))
    out = tmp_path / "out"
    options = ("--json", "--out", str(out), "--release-version", "3.7")
    report = json.loads(run(MIGRATOR, "rehearse", "-c", str(file), *ALONE, *options).stdout)
    assert (report["verdict"], report["metadata_version"], report["directory"]) == ("fine", "3.7-IV4", str(out))
    assert (report["kafka"]["outcome"], report["verified"]["outcome"]) == ("not checked", "not checked")
    again = in_this_process("rehearse", "-c", str(file), *ALONE, *options)
    assert (again.returncode, str(out) in again.stderr) == (ExitCode.REFUSED, True)


@pytest.mark.lane("test-all")
def test_a_release_that_cannot_be_fetched_is_said(new_cluster: MakeCluster, tmp_path: Path) -> None:
    file = property_file(new_cluster(), tmp_path)
    nowhere = f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={free_port()}"
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAVA_TOOL_OPTIONS": nowhere}
    answer = run(MIGRATOR, "rehearse", "-c", str(file), "--json", "--no-spark", **environment)
    report = json.loads(answer.stdout)
    assert (answer.returncode, report["kafka"]["outcome"]) == (ExitCode.OK, "not checked")
    assert "3.9.1 could not be fetched" in report["kafka"]["detail"]


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("option", ["--no-spark", "--kafka=none"])
def test_without_java_it_cannot_tell(new_cluster: MakeCluster, tmp_path: Path, option: str) -> None:
    file = property_file(new_cluster(), tmp_path)
    answer = run(MIGRATOR, "rehearse", "-c", str(file), option, PATH=str(tmp_path))
    assert answer.returncode == ExitCode.REFUSED
    assert "Java 17" in answer.stderr
    assert "the image 'tools'" in answer.stderr


@pytest.mark.lane("test-all")
def test_a_full_disk_is_named(new_cluster: MakeCluster, tmp_path: Path) -> None:
    file = property_file(new_cluster(partitions=2_000), tmp_path)
    out = tmp_path / "out"
    limited = ("bash", "-c", 'ulimit -f 64 && exec "$@"', "bash")
    answer = run(*limited, MIGRATOR, "rehearse", "-c", str(file), *ALONE, "--out", str(out))
    assert answer.returncode == ExitCode.REFUSED
    assert str(out / "__cluster_metadata-0") in answer.stderr
    assert "File too large" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_directory_that_cannot_be_made_is_named(new_cluster: MakeCluster, tmp_path: Path) -> None:
    file = property_file(new_cluster(), tmp_path)
    answer = in_this_process("rehearse", "-c", str(file), *ALONE, "--out", str(file / "below"))
    assert answer.returncode == ExitCode.REFUSED
    assert f"{file}: cannot create the directory: File exists" in answer.stderr, "the file that is in the way"
    assert "Traceback" not in answer.stderr
