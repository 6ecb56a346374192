"""The output of Go's tests is read correctly."""

from __future__ import annotations

from tests.peers.support import librdkafka
from tests.peers.support.franz_go import MODULE, SuiteResult, read

OUTPUT = """\
=== RUN   TestA
=== RUN   TestA/one
--- PASS: TestA (0.10s)
    --- PASS: TestA/one (0.10s)
=== RUN   TestB
    b_test.go:7: no luck
--- FAIL: TestB (0.00s)
=== RUN   TestC
--- SKIP: TestC (0.00s)
=== RUN   TestD
panic: test timed out after 1s
"""


def test_a_test_that_did_not_end_has_failed() -> None:
    assert read(OUTPUT) == SuiteResult(
        frozenset({"TestA", "TestA/one"}), frozenset({"TestB", "TestD"}), frozenset({"TestC"})
    )


def test_so_it_is_of_librdkafka() -> None:
    """Colours are between the words, and lines of other tests."""
    output = """\
\x1b[36m[<MAIN>/0.0s] ================= Running test 0081_admin =================
\x1b[0m[0081_admin /  9.1s] ================= Test 0081_admin PASSED =================
[<MAIN>/9.2s] ================= Running test 0103_transactions =================
[0103_transactions / 1.0s] ================= Test 0103_transactions FAILED =================
================= Test 0044_partition_cnt SKIPPED =================
[<MAIN>/9.3s] ================= Running test 0018_cgrp_term =================
"""
    assert librdkafka.read(output) == SuiteResult(
        frozenset({"0081_admin"}), frozenset({"0103_transactions", "0018_cgrp_term"}), frozenset({"0044_partition_cnt"})
    )


def test_a_part_of_a_test_is_named_with_it() -> None:
    """A part that is not in the test does not begin, and the test passes although it did nothing."""
    output = """\
[<MAIN>/0.0s] ================= Running test 0113_cooperative_rebalance =================
[0113_cooperative_rebalance / 0.1s] [ n_wildcard:1823 ]
[0113_cooperative_rebalance / 9.1s] [ n_wildcard:1823: PASS (9.00s) ]
[0113_cooperative_rebalance / 9.1s] ================= Test 0113_cooperative_rebalance PASSED =================
"""
    named = frozenset({"0113_cooperative_rebalance n_wildcard"})
    assert librdkafka.read(output, "n_wildcard") == SuiteResult(named, frozenset(), frozenset())
    unended = "\n".join(output.splitlines()[:2])
    assert librdkafka.read(unended, "n_wildcard") == SuiteResult(frozenset(), named, frozenset())
    other = frozenset({"0113_cooperative_rebalance o_other"})
    assert librdkafka.read(output, "o_other") == SuiteResult(frozenset(), frozenset(), other)


def test_the_version_is_pinned_with_checksums() -> None:
    pinned = [line.split()[:2] for line in (MODULE / "go.sum").read_text(encoding="utf-8").splitlines()]
    required = (MODULE / "go.mod").read_text(encoding="utf-8").partition("require ")[2].split()
    assert required in pinned
    assert [required[0], f"{required[1]}/go.mod"] in pinned
