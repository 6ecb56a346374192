"""A host that is broken, or whose owner is hostile, may answer anything: the rollout says which host it is, and notes
that it has stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from migrator.config.properties import decoded
from migrator.rollout.files.property_files import earlier_of
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.ports import ExecutorError
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER = "broker-2"
FILE = BROKER, "/etc/b2.properties"
OTHERS = BROKER, "/etc/b2.properties.before-migrate.other"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory()), tmp_path / "state")


@pytest.fixture
def migrating(operator: Operator) -> Operator:
    """The file of a broker is for the migration mode, and another rollout has kept it as it was."""
    files = operator.cluster.files
    files[OTHERS] = files[FILE]
    files[FILE] += b"zookeeper.metadata.migration.enable=true\n"
    return operator


def earlier(operator: Operator, rollout: str = "own") -> bytes | None:
    node, text = operator.node(BROKER), decoded(operator.cluster.files[FILE])
    return asyncio.run(earlier_of(operator.cluster, node, FileMode.BROKER_ZOOKEEPER, rollout, text))


def test_a_directory_that_may_not_be_listed_is_not_one_without_a_backup(migrating: Operator) -> None:
    cluster = migrating.cluster
    cluster.exit_codes["ls"] = 1
    with pytest.raises(ExecutorError, match="nobody can say whether another rollout has kept") as raised:
        earlier(migrating)
    assert BROKER in raised.value.where
    assert "/etc/b2.properties.before-migrate.own" in raised.value.remedy
    with pytest.raises(ExecutorError) as raised:
        earlier(migrating, rollout="")
    assert ".before-" not in raised.value.remedy
    cluster.exit_codes.clear()
    assert earlier(migrating) == cluster.files[OTHERS]
