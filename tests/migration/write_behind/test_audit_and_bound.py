"""Foreign writes are told from ours; the bound stops only what can wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from migrator.image.model import MetadataImage
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.write_behind import audit as auditing
from migrator.migration.write_behind.audit import FAMILIES, ForeignWrites, slices
from migrator.migration.write_behind.bound import Admission, WriteBound
from migrator.migration.write_behind.lag import Lag
from migrator.zookeeper.ops import Applied, Create, SetData, Stat
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import encode_config
from tests.lanes import examples
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support import images as some
from tests.migration.support.images import apply, empty_cluster, image_from, target

CONFIG = paths.config("brokers/1")
CREDENTIAL = "salt=YQ==,stored_key=Yg==,server_key=Yw==,iterations=4096"


@pytest.fixture
def zookeeper() -> ModelZooKeeper:
    made = empty_cluster()
    made.load({CONFIG: b"{}", paths.MIGRATION: None})
    return made


def look(zookeeper: ModelZooKeeper, audit: ForeignWrites) -> tuple[str, ...]:
    return audit.foreign(zookeeper.read([*FAMILIES, CONFIG]))


def write(zookeeper: ModelZooKeeper, audit: ForeignWrites, *ops: SetData | Create) -> None:
    outcome = zookeeper.multi([SetData(paths.MIGRATION, b"{}"), *ops])
    assert isinstance(outcome, Applied)
    assert isinstance(outcome.results[0], Stat)
    audit.wrote(outcome.results[0].mzxid)


def test_what_we_write_is_not_foreign(zookeeper: ModelZooKeeper) -> None:
    audit = ForeignWrites(zookeeper.zxid)
    write(zookeeper, audit, SetData(CONFIG, b"1"), Create(paths.config("brokers/2"), b"{}"))
    assert look(zookeeper, audit) == ()


@pytest.mark.parametrize(
    ("meddle", "path"),
    [
        (lambda zookeeper: zookeeper.set(CONFIG, b"foreign"), CONFIG),
        (lambda zookeeper: zookeeper.create(paths.config("brokers/7"), b"{}"), paths.BROKER_CONFIGS),
        (lambda zookeeper: zookeeper.delete(CONFIG), paths.BROKER_CONFIGS),
        (lambda zookeeper: zookeeper.create(f"{paths.DELETE_TOPICS}/a"), paths.DELETE_TOPICS),
    ],
)
def test_what_somebody_else_writes_is_named_once(
    zookeeper: ModelZooKeeper, meddle: Callable[[ModelZooKeeper], None], path: str
) -> None:
    audit = ForeignWrites(zookeeper.zxid)
    write(zookeeper, audit, SetData(CONFIG, b"1"))
    meddle(zookeeper)
    assert look(zookeeper, audit) == (path,)
    assert look(zookeeper, audit) == ()
    meddle_again = ForeignWrites(zookeeper.zxid)
    assert look(zookeeper, meddle_again) == (), "what was there when the reconcile ended is no concern"


def test_forgotten_writes_of_ours_do_not_become_foreign(
    zookeeper: ModelZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "MAX_OWN", 3)
    audit = ForeignWrites(zookeeper.zxid)
    for _ in range(10):
        write(zookeeper, audit, SetData(CONFIG, b"1"))
    assert look(zookeeper, audit) == ()


@settings(max_examples=examples(30))
@given(some.images())
def test_everything_that_an_image_has_in_zookeeper_is_watched(image: MetadataImage) -> None:
    zookeeper = empty_cluster()
    apply(zookeeper, reconcile(zookeeper, target(image)))
    watched = [path for part in slices(image, 3) for path in part]
    empty = {None, encode_config({})}
    held = {path for path, data in zookeeper.dump().items() if data not in empty and not path.startswith(some.NOTICES)}
    assert held - {paths.PRODUCER_IDS} <= set(watched)
    assert all(len(part) <= 3 for part in slices(image, 3))


def test_every_spelling_of_an_entity_is_watched(zookeeper: ModelZooKeeper) -> None:
    zookeeper.create("/config/users/svc@X", encode_config({"SCRAM-SHA-256": CREDENTIAL}))
    goal = target(image_from(zookeeper))
    assert list(reconcile(zookeeper, goal)) == []
    (watched,) = slices(goal.image, spellings=goal.spellings)
    zookeeper.create("/kafka-acl/Topic", parents=True)
    audit = ForeignWrites(zookeeper.zxid)
    zookeeper.set("/config/users/svc@X", b"{}")
    zookeeper.create("/config/users/s%76c@X", b"{}")
    zookeeper.create("/kafka-acl/Topic/t", b"{}")
    foreign = audit.foreign(zookeeper.read([*FAMILIES, *watched]))
    assert set(foreign) == {"/config/users/svc@X", paths.USER_CONFIGS, "/kafka-acl/Topic"}


def behind(own: int, age_ms: int = 0) -> Lag:
    return Lag(own, own, age_ms)


def test_administrative_writes_wait_and_not_for_ever() -> None:
    bound = WriteBound(max_records=100, max_age_ms=60_000, max_block_ms=5_000)
    assert bound.admit(behind(101), waited_ms=4_999) is Admission.WAIT
    assert bound.admit(behind(101), waited_ms=5_000) is Admission.REFUSE
    assert bound.admit(behind(100), waited_ms=0) is Admission.PROCEED
    assert not bound.exceeded(None), "before the copy, and with the flag off, there is no bound"


def test_the_bound_is_one_of_time_too() -> None:
    bound = WriteBound(max_records=100, max_age_ms=60_000, max_block_ms=5_000)
    assert not bound.exceeded(behind(1, 60_000))
    assert "60 s" in bound.exceeded(behind(1, 60_001))


def test_an_unknown_lag_blocks_by_what_this_leader_knows() -> None:
    bound = WriteBound(max_records=100, max_age_ms=60_000, max_block_ms=5_000)
    assert not bound.exceeded(Lag(None, 100, 60_000)), "not at once"
    assert bound.exceeded(Lag(None, 101, 0))
    assert bound.exceeded(Lag(None, 0, 60_001))


def test_blocked_time_counts_overlapping_waits_once() -> None:
    bound = WriteBound(1, 1, 1)
    bound.wait_began(1_000)
    bound.wait_began(1_500)
    assert bound.blocked_ms(1_600) == 600
    bound.wait_ended(2_000)
    bound.wait_ended(3_000)
    assert bound.blocked_ms(9_000) == 2_000
