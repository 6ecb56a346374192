"""The index of access control entries: finds what a look at all entries finds, and costs what changes."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from kio.schema.errors import ErrorCode

from migrator.apis.authorization import Authorizer
from migrator.controller.acl_index import AclIndex, at_once
from migrator.controller.acls import MAX_SCANNED, AclFilter, create_acls, delete_acls, matching
from migrator.controller.decision import RefusedError
from migrator.image.model import Acl
from migrator.image.security import acl_record
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.records.metadata import RemoveAccessControlEntryRecord
from migrator.records.uuid import Uuid
from migrator.turns import TURN_RECORDS
from tests.calls import calls_of
from tests.controller.support.leading_controller import LeadingController, some_uuid

LITERAL, PREFIXED = 3, 4

names = st.sampled_from(("", "a", "ab", "abc", "b", "*"))
kinds = st.sampled_from((2, 3, 4))
entries = st.builds(
    Acl,
    kinds,
    names.filter(bool),
    st.sampled_from((LITERAL, PREFIXED)),
    st.sampled_from(("User:a", "User:b", "User:*")),
    st.just("*"),
    st.sampled_from((3, 4)),
    st.sampled_from((2, 3)),
)
filters = st.builds(
    AclFilter,
    st.one_of(kinds, st.just(1)),
    st.one_of(names, st.none()),
    st.sampled_from((1, 2, 3, 4)),
    st.sampled_from((None, "User:a")),
)


@given(st.lists(entries, max_size=12), filters)
def test_filters_delete_what_a_look_at_all_entries_finds(acls: list[Acl], wanted: AclFilter) -> None:
    controller = LeadingController(*(acl_record(some_uuid(number), acl) for number, acl in enumerate(acls)))
    expected = sorted(repr(acl) for _, acl in matching(controller.image, wanted))
    decision = delete_acls(controller.image, (wanted,), controller.context())
    (found,) = decision.response
    assert sorted(map(repr, found.acls)) == expected
    ids = [record.id for record in decision.records if isinstance(record, RemoveAccessControlEntryRecord)]
    assert ids == sorted(ids), "their order in the log depends on no hash"
    assert found.acls == tuple(map(controller.image.acls.get, ids))


@given(
    st.lists(st.one_of(entries, st.none()), min_size=8, max_size=8),
    st.lists(st.one_of(entries, st.none()), min_size=8, max_size=8),
)
def test_a_step_leads_to_the_index_of_all_entries(before: list[Acl | None], after: list[Acl | None]) -> None:
    old, new = (Map({some_uuid(n): acl for n, acl in enumerate(acls) if acl}) for acls in (before, after))
    changed = [some_uuid(number) for number in range(10)]
    assert at_once(AclIndex.of(old).follow(old, new, changed)) == AclIndex.of(new)


def many(count: int) -> Map[Uuid, Acl]:
    """Entries of many topics, and of many users of one."""
    return Map(
        {
            some_uuid(number): Acl(
                ResourceType.TOPIC, "shared" if number % 2 else f"topic-{number}", LITERAL, f"User:{number}", "*", 3, 3
            )
            for number in range(count)
        }
    )


def test_a_change_and_a_question_cost_as_much_whether_there_are_few_entries_or_many() -> None:
    added = Acl(ResourceType.TOPIC, "shared", LITERAL, "User:new", "*", 3, 3)
    costs = []
    for count in (20, 20_000):
        acls = many(count)
        index, after = AclIndex.of(acls), acls.set(some_uuid(count), added)
        step = partial(at_once, index.follow(acls, after, (some_uuid(count),)))
        access = Authorizer(index, (), allow_if_no_acl=False).access_of("User:1", "h")
        question = partial(access.allows, AclOperation.READ, ResourceType.TOPIC, "shared")
        holds = partial(index.holds, added)
        costs.append([calls_of(work) for work in (step, question, holds)])
    assert costs[0] == costs[1]


def test_a_long_name_costs_no_more_than_there_are_lengths_of_prefixes() -> None:
    prefix = Acl(ResourceType.TOPIC, "abc", PREFIXED, "User:a", "*", 3, 3)
    access = Authorizer(AclIndex.of(Map({some_uuid(1): prefix})), (), allow_if_no_acl=False).access_of("User:a", "h")
    for name in ("abcd", "abc" + 1_000_000 * "d"):
        assert access.allows(AclOperation.READ, ResourceType.TOPIC, name)
    short, long = (
        calls_of(partial(access.allows, AclOperation.READ, ResourceType.TOPIC, name)) for name in ("abcd", 10**6 * "x")
    )
    assert long <= short


def test_many_changes_are_taken_in_by_slices() -> None:
    acls = many(10 * TURN_RECORDS)
    steps = AclIndex().follow(Map(), acls, acls)
    each = []
    while True:
        cost = calls_of(lambda: each.append(next(steps, steps)))
        assert cost < 40 * TURN_RECORDS
        if each[-1] is steps:
            break
    assert len(each) == 10


def test_named_filters_cost_a_look_up_and_too_many_others_are_refused() -> None:
    controller = LeadingController(*(acl_record(acl_id, acl) for acl_id, acl in many(2_000).items()))
    named = tuple(AclFilter(resource_type=2, resource_name=f"topic-{number}") for number in range(0, 1_000, 2))
    assert calls_of(lambda: delete_acls(controller.image, named, controller.context())) < 60 * len(named)
    scans = 1 + MAX_SCANNED // 2_000
    with pytest.raises(RefusedError) as refusal:
        delete_acls(controller.image, scans * (AclFilter(principal="User:nobody"),), controller.context())
    assert refusal.value.error.code is ErrorCode.policy_violation
    delete_acls(controller.image, (scans - 1) * (AclFilter(principal="User:nobody"),), controller.context())


def test_an_entry_that_is_there_is_not_written_again() -> None:
    controller = LeadingController(*(acl_record(acl_id, acl) for acl_id, acl in many(10).items()))
    known = next(iter(controller.image.acls.values()))
    assert controller.records_of(create_acls, (known,)) == []
