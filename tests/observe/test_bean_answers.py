"""Beans over HTTP: Jolokia's read requests and Strimzi's path, and whatever else may stand in their place."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.observe.beans import CONTROLLER, NAMES, RAFT, STATE, answer_for, beans_of
from migrator.observe.metrics import CONTROLLER_PREFIX, GAUGES, METRICS
from migrator.observe.write_times import METRICS as WRITE_METRICS
from migrator.observe.write_times import WriteTimes
from tests.observe.test_metrics import READING

BEANS = beans_of(READING, WriteTimes())
NOW_S = 1_700_000_000
BEAN = CONTROLLER + STATE
CANONICAL = f"kafka.controller:name={STATE},type=KafkaController"
VALUE = READING.zk_migration_state


def read(path: str) -> Any:
    answer = answer_for(f"/jolokia/read/{path}")
    assert answer is not None
    return json.loads(answer(BEANS, NOW_S))


def test_every_gauge_of_kafkas_controller_has_its_bean() -> None:
    gauges = {name for name, _, _ in GAUGES if name.startswith(CONTROLLER_PREFIX)}
    assert {CONTROLLER_PREFIX + name.lower() for name in NAMES} == gauges
    assert {name for name in METRICS if name.startswith(CONTROLLER_PREFIX)} == gauges | set(WRITE_METRICS)
    assert len(BEANS) == len(NAMES) + len(WRITE_METRICS) + 1


@pytest.mark.parametrize(
    "path",
    [
        BEAN,
        CANONICAL,
        quote(BEAN, safe=""),
        BEAN + "/",
        BEAN.replace("Zk", "!Zk"),
        BEAN.replace("Zk", "%5ak"),
    ],
)
def test_a_bean_is_read_as_jolokia_reads_it(path: str) -> None:
    request = {"mbean": CANONICAL, "type": "read"}
    assert read(path) == {"request": request, "value": {"Value": VALUE}, "timestamp": NOW_S, "status": 200}


def test_one_attribute_is_read_alone() -> None:
    request = {"mbean": CANONICAL, "attribute": "Value", "type": "read"}
    assert read(f"{BEAN}/Value") == {"request": request, "value": VALUE, "timestamp": NOW_S, "status": 200}
    assert read(f"{RAFT}/high-watermark")["value"] == READING.high_watermark
    assert set(read(CONTROLLER + "ZkWriteDeltaTimeMs")["value"]) == {
        *("Count", "Max", "Mean", "Min", "StdDev", "50thPercentile", "75thPercentile", "95thPercentile"),
        *("98thPercentile", "99thPercentile", "999thPercentile"),
    }


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        (CONTROLLER + "Other", 404, "javax.management.InstanceNotFoundException"),
        (CONTROLLER + "*", 404, "javax.management.InstanceNotFoundException"),
        ("java.lang:type=Memory", 404, "javax.management.InstanceNotFoundException"),
        (BEAN.replace("Zk", "!/"), 404, "javax.management.InstanceNotFoundException"),
        (BEAN.replace("Zk", "%21%2F"), 404, "javax.management.InstanceNotFoundException"),
        (f"{BEAN}/Other", 404, "javax.management.AttributeNotFoundException"),
        (f"{BEAN}/Value/deeper", 404, "javax.management.AttributeNotFoundException"),
        ("", 400, "java.lang.IllegalArgumentException"),
        ("nonsense", 400, "java.lang.IllegalArgumentException"),
        ("kafka.controller:", 400, "java.lang.IllegalArgumentException"),
        ("kafka.controller:type", 400, "java.lang.IllegalArgumentException"),
        ("kafka%2Fcontroller", 400, "java.lang.IllegalArgumentException"),
    ],
)
def test_what_is_not_there_is_said_in_the_body(path: str, status: int, error: str) -> None:
    found = read(path)
    assert (found["status"], found["error_type"]) == (status, error)
    assert found["error"].startswith(f"{error} : ")
    assert "value" not in found


@pytest.mark.parametrize("path", ["/v1/kraft-migration", "/v1/kraft-migration/"])
def test_strimzi_reads_the_state(path: str) -> None:
    answer = answer_for(path)
    assert answer is not None
    assert answer(BEANS, NOW_S) == b'{"state":%d}' % VALUE


@pytest.mark.parametrize(
    "path", ["/", "", "/jolokia", "/jolokia/", "/jolokia/read", "/jolokia/list", "/jolokia/write/a:b=c", "/v1", "/v1/x"]
)
def test_other_paths_are_not_there(path: str) -> None:
    assert answer_for(path) is None


ODD = st.text(st.sampled_from("!/%2F:,=*?\"'\\\0\x7f\xff.aV") | st.characters(max_codepoint=255), max_size=60)


@given(st.lists(ODD | st.sampled_from([BEAN, RAFT, "Value"]), max_size=5).map("/".join))
def test_any_path_gets_an_answer_in_json(path: str) -> None:
    found = read(path)
    assert found["status"] in (200, 400, 404)
    assert ("value" in found) is (found["status"] == 200)


@given(st.sampled_from(sorted(BEANS)), st.data())
def test_a_name_may_be_escaped_anywhere(name: str, data: st.DataObject) -> None:
    escaped = "".join(data.draw(st.sampled_from([each, f"!{each}", f"%{ord(each):02x}"])) for each in name)
    assert read(escaped)["value"] == dict(BEANS[name])
