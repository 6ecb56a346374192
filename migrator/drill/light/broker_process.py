"""Light brokers as a process of their own, for whoever wants to kill them.

python -m migrator.drill.light.broker_process --zookeeper HOSTS --controllers H:P,H:P --cluster-id ID --brokers 1,2,3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from typing import Any

from migrator.drill.light.broker import LightBroker, LightBrokerOptions


def state_of(broker: LightBroker) -> dict[str, Any]:
    """What a process of light brokers reports when it ends."""
    return {
        "broker_id": broker.options.broker_id,
        "port": broker.port,
        "epoch": broker.epoch,
        "fenced": broker.fenced,
        "topics": len(broker.cache.topics),
        "partitions": sum(len(partitions) for partitions in broker.cache.topics.values()),
        "hosted": len(broker.replicas.hosted),
        "requests": dict(broker.requests),
        "errors": {error.name: count for error, count in broker.errors.items()},
        "violations": broker.violations,
    }


async def run(options: Sequence[LightBrokerOptions]) -> list[dict[str, Any]]:
    """Run brokers until SIGTERM or SIGINT, then leave in good order; gives what each had come to."""
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    brokers = [LightBroker(each) for each in options]
    started: list[LightBroker] = []
    try:
        for broker in brokers:
            await broker.start()
            started.append(broker)
        await told_to_stop.wait()
    finally:
        reports = [state_of(broker) for broker in brokers]
        await asyncio.gather(*(broker.stop() for broker in started))
    return reports


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of a process of light brokers; prints one JSON object a broker when it ends."""
    parser = argparse.ArgumentParser(prog="python -m migrator.drill.light.broker_process", description=__doc__)
    parser.add_argument("--zookeeper", required=True, help="connection string, with chroot")
    parser.add_argument("--controllers", required=True, help="host:port,... of the controllers' listeners")
    parser.add_argument("--cluster-id", required=True)
    parser.add_argument("--brokers", required=True, help="broker ids, with commas")
    parser.add_argument("--metadata-version", type=int, default=21, help="feature level; 21 is 3.9-IV0")
    given = parser.parse_args(arguments)
    controllers = [
        (host, int(port)) for host, _, port in (text.rpartition(":") for text in given.controllers.split(","))
    ]
    options = [
        LightBrokerOptions(int(broker), given.cluster_id, given.zookeeper, controllers, given.metadata_version)
        for broker in given.brokers.split(",")
    ]
    for report in asyncio.run(run(options)):
        sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
