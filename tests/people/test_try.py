import asyncio, sys
from pathlib import Path
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all
from migrator.migration.machine.states import State
from migrator.drill.report import DrillReport

async def st(c, *more):
    p = await asyncio.create_subprocess_exec(sys.executable, "-c", "from migrator.cli.main import main; main()", "status", "-c", str(c.property_file), *more, stdout=-1, stderr=-2)
    out, _ = await p.communicate()
    return f"exit {p.returncode}\n{out.decode()}"

async def test_try(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    f = open("/tmp/try-status.txt", "w")
    async def say(what, c):
        print("=====", what, "\n", await st(c), file=f, flush=True)
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=3, partitions=30) as cluster:
        a, b, c = cluster.controllers
        await say("not started", a)
        a.start(); await cluster.until("socket", lambda: a.status())
        await say("one of three, before the first leader", a)
        b.start(); c.start()
        lead = await cluster.until_state(State.WAITING_FOR_BROKERS)
        foll = next(x for x in cluster.controllers if x is not lead)
        await say("leader waiting", lead)
        await say("follower", foll)
        await cluster.to_migration_mode() if hasattr(cluster, "to_migration_mode") else None
        lead = await cluster.until_dual_writing()
        await say("dual-writing", lead)
        foll.kill()
        await asyncio.sleep(4)
        await say("one down, leader asked", lead); await say("node down asked", foll)
        for g in cluster.gates.values(): g.cut()
        await asyncio.sleep(70)
        await say("zookeeper away", lead)
        print("LOG", lead.process.tail(400), file=f, flush=True)
        third = next(x for x in cluster.controllers if x is not lead and x is not foll)
        third.kill(); await asyncio.sleep(4)
        await say("no leader", lead)
        f.flush()
