"""The addresses and the security of controllers' and brokers' listeners, from a property file's settings.

Node, tools and preflight call it, so all see the same listener. A key that cannot be used is an `OperatorError` before
a socket opens.
"""

from __future__ import annotations

from collections.abc import Mapping

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.machine import machine
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.sasl import ScramAccounts
from migrator.wire.security import ListenerSecurity, listener_security


def controller_security(settings: Settings) -> ListenerSecurity:
    """Security of the listener that peers and brokers use, the first of ``controller.listener.names``.

    :raises OperatorError: a key can't be used.
    """
    return named_security(settings, settings.controller_listeners[0])


def named_security(settings: Settings, name: str, accounts: ScramAccounts | None = None) -> ListenerSecurity:
    """Security of one of this node's listeners; errors as `controller_security`.

    As in Kafka, peers are reached on the first listener, so only that one needs a client login.

    :param accounts: the SCRAM credentials of the listener's clients.
    """
    is_ours = name == settings.controller_listeners[0]
    return listener_security(
        settings.explicit,
        name,
        settings.protocol_map[name],
        client_mechanism=settings.sasl_mechanism_controller_protocol if is_ours else None,
        accounts=accounts,
    )


def broker_security(settings: Settings) -> ListenerSecurity:
    """Security of connections to brokers for LeaderAndIsr and similar requests; errors as `controller_security`."""
    name, protocol = settings.broker_rpc_listener, settings.broker_rpc_protocol
    if protocol is None:
        raise OperatorError(
            f"listener {name} has no entry there",
            where="listener.security.protocol.map",
            remedy="Copy the entry of the brokers",
        )
    return listener_security(
        settings.explicit,
        name,
        protocol,
        client_mechanism=settings.sasl_mechanism_inter_broker_protocol,
        serves=False,
    )


def own_endpoints(settings: Settings) -> tuple[ListenerEndpoint, ...]:
    """The controller listeners that this node advertises: for a configured voter that in ``controller.quorum.voters``,
    otherwise those of ``advertised.listeners``."""
    configured = voter_endpoints(settings).get(settings.node_id)
    if configured is not None:
        return (configured,)
    found = settings.advertised_controller_listeners
    return tuple(ListenerEndpoint(at.name, at.host or machine().host_name(), at.port) for at in found)


def voter_endpoints(settings: Settings) -> Mapping[int, ListenerEndpoint]:
    """The controller listener of each voter in ``controller.quorum.voters``."""
    name = settings.controller_listeners[0]
    return {voter.voter_id: ListenerEndpoint(name, voter.host, voter.port) for voter in settings.voters}
