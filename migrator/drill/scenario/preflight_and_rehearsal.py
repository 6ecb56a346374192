"""What an operator asks before a migration: is anything in its way, and how long will it take?"""

from __future__ import annotations

import asyncio
from typing import Any

from migrator.drill.cluster import Cluster
from migrator.drill.probes import command
from migrator.drill.report import DrillReport
from migrator.errors import ExitCode

RELEASE_VERSION = "3.9"


async def preflight_and_rehearse(cluster: Cluster, report: DrillReport) -> dict[str, Any]:
    """`migrator preflight` and `migrator rehearse`, with the files of the migration. Light brokers have none, and do
    not answer as Kafka's do. Gives what the rehearsal printed, nothing without one.

    :raises DrillFailedError: one of them printed no report.
    """
    brokers = [str(file) for file in await asyncio.to_thread(cluster.migration_files)]
    if not brokers:
        return {}
    with report.step("Preflight and rehearsal find nothing in the way"):
        for controller in cluster.controllers:
            await asyncio.to_thread(controller.write_properties)
        files = [str(controller.property_file) for controller in cluster.controllers]
        report.wait_for("migrator preflight")
        arguments = ["preflight", *(f"--config={file}" for file in files), "--brokers", *brokers]
        code, judged = await command(cluster, *arguments)
        named = [f"{finding['code']} {finding['severity']}" for finding in judged["findings"]]
        report.check("preflight names no blocker", code == ExitCode.OK, f"exit code {code}: {named}")
        report.wait_for("migrator rehearse")
        arguments = ["rehearse", "-c", files[0], "--release-version", RELEASE_VERSION, "--no-spark"]
        code, found = await command(cluster, *arguments)
        report.check("the rehearsal names no blocker", code == ExitCode.OK, f"exit code {code}: {found['blockers']}")
        if found["forecast"] is not None:
            forecast = found["forecast"]["dual_write"]
            told = f"{forecast['seconds']:.1f} ± {forecast['error']:.1f}"
            report.figure("forecast, seconds from the last broker's registration to dual-write", told)
        rehearsal: dict[str, Any] = found
        return rehearsal
