"""M217: a controller's own entry among the voters, compared with the listener that it opens.

Kafka never compares them: a controller of the wrong port starts, and the others wait for it in vain.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.config.endpoints import parse_host_port
from migrator.config.keys import VOTERS
from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Found, PreflightCheck
from migrator.preflight.evidence import ControllerFile, Evidence

ADVERTISED, GRPC_VOTERS, GRPC_LISTENER = "advertised.listeners", "migrator.grpc.voters", "migrator.grpc.listener"
ANY_PORT = 0


def another_port(evidence: Evidence) -> Iterator[Found]:
    """Ports are compared, hosts are not: one host has several names."""
    for controller in evidence.controllers:
        for key, opened_by, named, opened in (*_of_kafka(controller), *_of_grpc(controller)):
            if opened not in (named, ANY_PORT):
                what = f"its own entry names port {named}, and {opened_by} has port {opened}"
                yield Found(controller.file.at(key), what, hosts=(controller.who,))


def _of_kafka(controller: ControllerFile) -> Iterator[tuple[str, str, int, int]]:
    """The key, the address of the open port, the advertised port, and the open port."""
    try:
        listeners = controller.settings.advertised_controller_listeners
    except ValueError:  # another finding refuses the listeners already
        return
    own = [voter for voter in controller.voters if voter.voter_id == controller.node_id]
    if own and listeners:
        first = listeners[0]
        told = (controller.settings.advertised_listeners or "").upper()
        key = ADVERTISED if f"{first.name}://" in told else "listeners"
        yield VOTERS, f"{first.name} in {key}", own[0].port, first.port


def _of_grpc(controller: ControllerFile) -> Iterator[tuple[str, str, int, int]]:
    """Like `_of_kafka`, for the quorum's own gRPC."""
    settings = controller.settings
    try:
        port = parse_host_port(settings.migrator_grpc_listener)[1]
        voters = settings.grpc_voters
    except ValueError:  # not set, or refused already
        return
    for voter in voters:
        if voter.voter_id == controller.node_id:
            yield GRPC_VOTERS, GRPC_LISTENER, voter.port, port


CHECKS = (
    PreflightCheck(
        "M217", Severity.WARNING, "Other controllers would look for a controller at a port that it does not open",
        another_port,
        "Correct the port in the one or the other, in every file that has it. If a proxy or a container maps the port, "
            "say so with advertised.listeners (Kafka 3.9 and this program)", asks=True,
    ),
)  # fmt: skip
