"""`migrator top` on a real terminal, beside real controllers that migrate, lose their leader, and find another one."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from migrator.errors import ExitCode
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all
from tests.people.support.commands import migrator
from tests.people.support.terminal import on_terminal


async def migrator_on(*arguments: str, **env: str) -> str:
    """All that it draws on a terminal with these variables."""
    async with on_terminal(*arguments, env=env) as terminal:
        drawn = await terminal.to_the_end()
        assert await terminal.process.wait() == ExitCode.OK
        return drawn


async def test_one_screen_follows_the_migration_and_its_leaders(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=2, partitions=20) as cluster:
        one, *_ = cluster.controllers
        down = await migrator("top", "-c", str(one.property_file))
        assert down.code == ExitCode.REFUSED
        assert "Start the controller" in down

        start_all(cluster)
        leader = await cluster.until_dual_writing()
        follower = next(each for each in cluster.controllers if each is not leader)
        picture = tmp_path / "top.svg"
        once = await migrator("top", "-c", str(follower.property_file), "--picture", str(picture))
        assert once.code == ExitCode.OK
        assert "✓ MigrateZkData ─ ● DualWrite ─ ○ Finished" in once
        assert "run 'migrator verify', then restart the brokers in KRaft mode" in once
        drawn = picture.read_text().replace("&#160;", " ")
        assert f"controller {leader.node_id} leads" in drawn
        assert not re.search(r"url\(['\"]?https?:|href=|@import", drawn), "it loads nothing"

        outside = await migrator("top", "-c", str(follower.property_file), "--controllers", "stock")
        assert outside.code == ExitCode.OK
        assert "● DualWrite" in outside
        assert f"controller {leader.node_id} leads" in outside
        assert "restart the brokers in KRaft mode" in outside

        dumb = await migrator_on("top", "-c", str(follower.property_file), TERM="dumb")
        assert "This is one look" in dumb
        assert "\x1b" not in dumb
        plain = await migrator_on("top", "-c", str(follower.property_file), "--once", NO_COLOR="1")
        assert "● DualWrite" in plain
        assert not re.search(r"\x1b\[(?:\d+;)*[349]\d", plain), "a colour"

        async with on_terminal("top", "-c", str(follower.property_file)) as terminal:
            await terminal.shows("● DualWrite")
            await terminal.shows("committed:")
            await asyncio.to_thread(leader.kill)
            await terminal.shows(f"controller {leader.node_id}: ")
            await terminal.shows("dual-writing for")
            terminal.resize(12, 70)
            await terminal.shows("more lines: enlarge the window")
            terminal.resize(50, 160)
            await terminal.shows("not heard since the leader was elected")
            terminal.press_ctrl_c()
            assert await terminal.process.wait() == 130
