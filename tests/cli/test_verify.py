"""Options of `migrator verify` that do not go together: refused before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.cli.verify import command
from migrator.errors import ExitCode, OperatorError

FILES = ("--zookeeper-files", "data", "--metadata", "log")
LIVE = ("--zookeeper", "nowhere:1", "--metadata", "log")
CONTROLLER = ("--server", "nowhere:1")


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ((*FILES, *CONTROLLER, "--report"), "--report"),
        ((*FILES, *CONTROLLER, "--repair"), "--repair"),
        (("--parquet", "kept", *CONTROLLER, "--report"), "--report"),
        ((*FILES, "--watch", "5"), "--watch"),
        ((*LIVE, "--watch", "5", "--parquet", "kept"), "--parquet"),
        ((*LIVE, *CONTROLLER, "--repair", "--parquet", "kept"), "--parquet"),
        (("--metadata", "log"), "--zookeeper"),
        (("--zookeeper-files", "data"), "--metadata"),
        ((*FILES, "--conf", "memory"), "--conf"),
    ],
)
def test_it_is_refused_with_the_option_at_fault(
    arguments: tuple[str, ...], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(result.exception, OperatorError), result.exception
    assert (result.exception.where, result.exception.exit_code) == (where, ExitCode.REFUSED)
    assert list(tmp_path.iterdir()) == []
