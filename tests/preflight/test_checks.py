"""Every check: silent on a cluster that is ready, and heard on one that is broken in its way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from migrator.config.key_lists import TOPIC_DEFAULTS
from migrator.config.key_uses import Use, listed_use
from migrator.preflight.check import KRAFT, SPANS, START, Concerns
from migrator.preflight.checks.controllers import RUNS_WITH_IT
from migrator.preflight.checks.defaults import DECIDED, SHOWN
from migrator.preflight.checks.security import STOCK_WAY
from migrator.preflight.table import CHECKS
from tests.preflight.support import cases_of_brokers, cases_of_files, cases_of_the_way, cases_of_zookeeper
from tests.preflight.support.ready_cluster import ReadyCluster

CASES = (*cases_of_zookeeper.CASES, *cases_of_files.CASES, *cases_of_brokers.CASES, *cases_of_the_way.CASES)
EXPECTED = {"M322"} | ({"M508"} if os.geteuid() == 0 else set())
"""Doors are open, and what root makes belongs to root."""
BY_CODE = {check.code: check for check in CHECKS}


@pytest.mark.parametrize("concerns", [Concerns.OURS, Concerns.STOCK])
def test_a_cluster_that_is_ready_passes_every_check(cluster: ReadyCluster, concerns: Concerns) -> None:
    report = cluster.report(concerns)
    found = [(finding.check.code, finding.where, finding.what) for finding in report.findings]
    assert {it[0] for it in found} == EXPECTED, found
    assert report.unknown == ()
    assert report.exit_code == 0


def test_files_that_name_controllers_by_their_addresses_pass_every_check(cluster: ReadyCluster) -> None:
    for properties in (*cluster.controllers, *cluster.brokers):
        servers = properties.pop("controller.quorum.voters").partition("@")[2]
        properties["controller.quorum.bootstrap.servers"] = servers
    found = [(finding.check.code, finding.where, finding.what) for finding in cluster.report(Concerns.OURS).findings]
    assert {it[0] for it in found} == EXPECTED, found


@pytest.mark.parametrize("harmless", cases_of_the_way.HARMLESS, ids=lambda change: change.__name__)
def test_a_cluster_that_is_unusual_and_healthy_passes_every_check(
    cluster: ReadyCluster, harmless: cases_of_zookeeper.Damage
) -> None:
    harmless(cluster)
    report = cluster.report()
    assert {it.check.code for it in report.findings} == EXPECTED, [(it.check.code, it.what) for it in report.findings]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code} {case.damage.__name__}")
def test_a_check_finds_what_it_is_for(cluster: ReadyCluster, case: cases_of_zookeeper.Case) -> None:
    case.damage(cluster)
    check = BY_CODE[case.code]
    report = cluster.report(Concerns.STOCK if check.concerns is Concerns.STOCK else Concerns.OURS)
    found = [finding for finding in report.findings if finding.check is check]
    assert found, f"found only {[(it.check.code, it.what) for it in report.findings]}, {report.unknown}"
    assert any(case.where in place for place in (*found[0].where, *found[0].hosts))
    assert case.what in f"{', '.join(found[0].hosts)}: {found[0].what}"
    assert all(finding.remedy for finding in found)
    if report.blockers:
        assert report.exit_code == 1
    elif not report.unknown:
        assert report.exit_code == 0


@pytest.mark.parametrize(
    ("damage", "code"),
    [(cases_of_files.earlier_attempt, "M119"), (cases_of_files.log_of_an_earlier_migration, "M212")],
)
@pytest.mark.parametrize("sign", cases_of_the_way.SIGNS_OF_A_MIGRATION, ids=lambda sign: sign.__name__)
def test_nobody_is_told_to_delete_a_log_while_a_migration_may_run(
    cluster: ReadyCluster, damage: cases_of_zookeeper.Damage, code: str, sign: cases_of_zookeeper.Damage
) -> None:
    damage(cluster)
    sign(cluster)
    told = [it.remedy for it in cluster.report().findings if it.check.code == code]
    assert all(remedy == RUNS_WITH_IT for remedy in told), told


def test_every_check_has_a_case_and_its_phases() -> None:
    assert {case.code for case in CASES} == set(BY_CODE) == set(SPANS)
    assert all(it.first.number <= it.last.number for it in SPANS.values())


def test_what_is_right_after_the_copy_is_no_blocker_then(cluster: ReadyCluster) -> None:
    """A quorum has the claim, ZooKeeper has its mark, and the log of the controller has the copy."""
    cases_of_files.migration_under_way(cluster)
    cases_of_zookeeper.claimed_by_kraft(cluster)
    found = [{it.check.code for it in cluster.report(before=phase).findings} for phase in (START, KRAFT)]
    assert found == [{"M003", "M005"} | EXPECTED, EXPECTED]


JAVA = (
    (cases_of_the_way.authorizer_of_others, {"M301", "M305"}),
    (cases_of_files.broker_with(create_topic_policy_class_name="com.example.P"), {"M302"}),
    (cases_of_files.controller_with(alter_config_policy_class_name="com.example.P"), {"M301"}),
    (cases_of_files.java_builder_on_a_broker, {"M303"}),
    (cases_of_the_way.kerberos, {"M313"}),
    (cases_of_files.controller_with(ssl_engine_factory_class="com.example.F"), {"M320"}),
)


@pytest.mark.parametrize(("damage", "codes"), JAVA)
def test_a_cluster_that_needs_java_is_told_its_way(
    cluster: ReadyCluster, damage: cases_of_zookeeper.Damage, codes: set[str]
) -> None:
    damage(cluster)
    found = [finding for finding in cluster.report().findings if finding.check.code in codes]
    assert {finding.check.code for finding in found} == codes
    assert all(STOCK_WAY in finding.remedy for finding in found), [finding.remedy for finding in found]
    page = Path("docs/stock-controllers.md").read_text()
    assert all(code in page for code in codes)


def test_every_default_of_topics_is_compared_and_obeyed() -> None:
    """A key that a controller decides by, and that this program ignores, would be compared in vain."""
    compared = {name for names in SHOWN.values() for name, _ in names} | {*DECIDED}
    assert compared >= TOPIC_DEFAULTS
    assert {key for key in compared if listed_use(key) is not Use.ACTED_UPON} == set()


def test_codes_are_unique_and_in_order() -> None:
    codes = [check.code for check in CHECKS]
    assert codes == sorted(set(codes))
