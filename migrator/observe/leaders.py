"""Sentences about a leader that was asked for, and that takes no orders."""

from __future__ import annotations


def stock_leads(leader: int) -> str:
    """Kafka's controller leads. Running the command on its machine does not help: our program is not there."""
    return f"controller {leader} leads, and is one of Kafka's own controllers: it takes no orders of this program"


def under_stock(leader: int) -> str:
    """The remedy for that case."""
    return (
        f"Restart controller {leader}, so that a controller of this program can be elected, and try again. Kafka's "
        "kafka-metadata-quorum.sh describes and changes voters under any leader"
    )


def whom_to_ask(leader: int | None, *, is_stock: bool) -> str:
    """The remedy for an order that only a leader of this program takes."""
    if leader is None:
        return "Wait for an election"
    return under_stock(leader) if is_stock else f"Ask controller {leader}, which leads"
