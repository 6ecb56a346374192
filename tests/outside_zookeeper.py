"""Runs a command beside a ZooKeeper server that is not the tests' own, as a hosted service container would be.

``python -m tests.outside_zookeeper COMMAND...``; the command finds the server in MIGRATOR_TEST_ZOOKEEPER.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from migrator.parts.zookeeper import EmbeddedZooKeeper
from tests.conftest import OUTSIDE_ZOOKEEPER


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch, EmbeddedZooKeeper(Path(scratch)) as server:
        environment = os.environ | {OUTSIDE_ZOOKEEPER: server.hosts}
        return subprocess.run(sys.argv[1:], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
