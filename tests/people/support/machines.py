"""The machines of docs/runbook.md on this one: a directory each, services for ``systemctl``, Kafka's scripts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from multiprocessing.connection import Listener
from pathlib import Path
from types import MappingProxyType
from typing import Self

import orjson

from migrator.drill.cluster import MIGRATOR
from migrator.drill.kafka.cluster import ALTER_PARTITION_ENDED, BROKER_JVM, until
from migrator.errors import OperatorError
from migrator.parts.java import Jvm
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import ChildProcess, free_port
from tests.patience import PATIENCE_SECONDS
from tests.people.support import runbook
from tests.people.support.runbook import Block, Command, Part

ROOT = Path(__file__).parents[3]
UNIT = (ROOT / "deploy/systemd/kraft-migrator.service").read_text()
EXEC_START = next(line.partition("=")[2] for line in UNIT.splitlines() if line.startswith("ExecStart="))
STOP_SECONDS = 60.0
SCRIPTS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-metadata-quorum.sh": "org.apache.kafka.tools.MetadataQuorumCommand",
}
KAFKA_UNITS = {"kafka": "/etc/kafka/server.properties", "kafka-controller": "/etc/kafka/controller.stock.properties"}
"""Which file Kafka's own services are started with."""
ENDS = {"kafka": (0,), "kafka-controller": (0,), "kraft-migrator": (0, 2, 3)}
"""Exit codes after which systemd lets a service be."""
DIRECTORIES = ("/etc/kafka", "/var/lib/kafka")
HOSTS = (*runbook.BROKERS, *runbook.CONTROLLERS)
_SYSTEMCTL = """\
#!{python}
import os, sys
from multiprocessing.connection import Client
with Client(("127.0.0.1", {port}), authkey={key!r}) as link:
    link.send((os.environ["MACHINE"], sys.argv[1:]))
    code, text = link.recv()
print(text, end="")
sys.exit(code)
"""


class Machines:
    """Leaving its context ends all services.

    :param zookeeper: ``host:port`` of the server.
    """

    def __init__(self, kafka: StockKafka, directory: Path, zookeeper: str) -> None:
        self.directory = directory
        self._kafka = kafka
        self._services: dict[tuple[str, str], ChildProcess] = {}
        self._last_code: dict[tuple[str, str], int] = {}
        self._ports = {name: f"127.0.0.1:{free_port()}" for host in HOSTS for name in self._addresses(host)}
        self._ports["zookeeper-1:2181"] = zookeeper
        self._key = os.urandom(16)
        self._door = Listener(("127.0.0.1", 0), authkey=self._key)
        self._bin = directory / "bin"
        self._last_leader = runbook.CONTROLLERS[0]
        self.transcript: list[str] = []

    @staticmethod
    def _addresses(host: str) -> Sequence[str]:
        return (f"{host}:9092",) if host.startswith("kafka") else (f"{host}:9093",)

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` of clients."""
        return ",".join(self._ports[f"{host}:9092"] for host in runbook.BROKERS)

    def places(self, machine: str) -> dict[str, str]:
        """What the names on the page are, for somebody on a machine: the one rule of the whole test."""
        own = {name: str(self._path(machine, name)) for name in DIRECTORIES}
        others = {f"{host}:{name}": str(self._path(host, name)) for host in HOSTS for name in DIRECTORIES}
        return {**self._ports, **own, **others}

    def perform(
        self,
        part: Part,
        *,
        only: Mapping[str, int] = MappingProxyType({}),
        interrupted: bool = False,
        without: Collection[str] = (),
    ) -> None:
        """Do what a part of the page says.

        :param only: on how many machines, where this is not all of those that the page names.
        :param interrupted: nothing is done after that: the operator turns back in the middle.
        :param without: commands of the program that are left out: they only look, take long, and were seen already.
        """
        begin = time.monotonic()
        for where, blocks in runbook.rounds(part.blocks):
            for machine in self._machines(where)[: only.get(where)]:
                for block in blocks:
                    self._perform(block, machine, part, without)
            if interrupted and where in only:
                break
        self.transcript.append(f"== {part.name}: {time.monotonic() - begin:.0f} s")

    def start_brokers(self) -> None:
        """All at once, as a cluster in use runs."""
        for machine in runbook.BROKERS:
            self._systemctl(machine, ["start", "kafka"])

    def _machines(self, where: str) -> Sequence[str]:
        if where == runbook.LEADER:
            return (self._leader(),)
        if where == runbook.FOLLOWERS:
            leader = self._leader()
            return [machine for machine in runbook.CONTROLLERS if machine != leader]
        return runbook.MACHINES[where]

    def _leader(self) -> str:
        """Which controller leads; when nobody does any more, the last one that did."""
        found = [machine for machine in runbook.CONTROLLERS if self._leads(machine)]
        if found:
            self._last_leader = found[0]
        return self._last_leader

    def _leads(self, machine: str) -> bool:
        _, said = self.run("migrator status -c /etc/kafka/controller.properties --json", machine)
        try:
            status = orjson.loads(said)
        except orjson.JSONDecodeError:
            return False
        return bool(status["quorum"]["leader_id"] == status["node_id"])

    def _perform(self, block: Block, machine: str, part: Part, without: Collection[str]) -> None:
        for command in block.commands:
            if not command.typed.startswith(tuple(f"migrator {name}" for name in without)):
                self._type(command, block, machine, part)
        if not block.file:
            return
        text = runbook.substituted(runbook.of_machine(block.text, machine), self.places(machine))
        file = self._path(machine, block.file)
        if not block.origin:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
            return
        origin = self._path(machine, block.origin).read_text()
        assert origin == runbook.before(text), f"line {block.line}: {block.origin} is not what the change applies to"
        file.write_text(runbook.after(text))

    def _type(self, command: Command, block: Block, machine: str, part: Part) -> None:
        expected = runbook.substituted(command.expected, self.places(machine))
        said = ""

        def done() -> bool:
            nonlocal machine, said
            if block.repeat and block.where == runbook.LEADER:
                machine = self._leader()  # another one may lead by now
            code, said = self.run(command.typed, machine)
            self._restart_what_failed()
            if block.repeat and ALTER_PARTITION_ENDED in part.prose:
                self._restart_brokers_without_alter_partition()
            return code == block.exit_code and runbook.is_as_printed(expected, said)

        try:
            if block.repeat:
                until(command.typed, done, seconds=PATIENCE_SECONDS)
            else:
                assert done()
        except (AssertionError, OperatorError) as error:
            raise AssertionError(
                f"line {block.line} on {machine}: {command.typed}\n{said}\nnot:\n{expected}"
            ) from error
        finally:
            self.transcript.append(f"[{machine}] $ {command.typed}\n{said}")

    def run(self, typed: str, machine: str) -> tuple[int, str]:
        """Exit code, and what is printed, of a command line in a shell of a machine."""
        home = self.directory / machine
        home.mkdir(exist_ok=True)
        done = subprocess.run(
            ["/bin/sh", "-c", runbook.substituted(typed, self.places(machine))],
            cwd=home,
            env={**os.environ, "PATH": f"{self._bin}:{os.environ['PATH']}", "MACHINE": machine, "COLUMNS": "400"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def _restart_brokers_without_alter_partition(self) -> None:
        """As the way back tells the operator to, where a broker's log has that line."""
        for (machine, unit), service in list(self._services.items()):
            runs = unit == "kafka" and service.exit_code() is None
            if runs and ALTER_PARTITION_ENDED in service.output_text():
                self._systemctl(machine, ["restart", unit])

    def _restart_what_failed(self) -> None:
        """As the units say: `Restart=on-failure`."""
        for (machine, unit), service in list(self._services.items()):
            if service.exit_code() not in (None, *ENDS[unit]):
                self._systemctl(machine, ["restart", unit])

    def _path(self, machine: str, name: str) -> Path:
        return self.directory / machine / name.removeprefix("/")

    # The services.

    def _serve(self) -> None:
        while True:
            try:
                with self._door.accept() as link:
                    machine, words = link.recv()
                    try:
                        link.send(self._systemctl(machine, words))
                    except OperatorError as error:
                        link.send((1, f"{error}\n"))
            except (OSError, EOFError):
                return

    def _systemctl(self, machine: str, words: Sequence[str]) -> tuple[int, str]:
        action, unit, *more = words
        which = machine, unit
        if action == "show" and more == ["-p", "ExecMainStatus"]:
            return 0, f"ExecMainStatus={self._last_code.get(which, 0)}\n"
        if action in ("stop", "restart") and which in self._services:
            self._last_code[which] = self._services.pop(which).stop(grace_seconds=STOP_SECONDS)
        if action in ("start", "restart") and which not in self._services:
            self._services[which] = ChildProcess(
                f"{unit} on {machine}", self._command(machine, unit), output=self.directory / machine / f"{unit}.log"
            )
        return (0, "") if action in ("start", "stop", "restart") else (1, f"no systemctl {action} here\n")

    def _command(self, machine: str, unit: str) -> list[str]:
        if unit in KAFKA_UNITS:
            file = runbook.substituted(KAFKA_UNITS[unit], self.places(machine))
            return self._kafka.command("kafka.Kafka", file, directory=self.directory / machine, jvm=BROKER_JVM)
        _, *words = shlex.split(runbook.substituted(EXEC_START, self.places(machine)))
        return [MIGRATOR, *words]

    def _write_scripts(self) -> None:
        self._bin.mkdir(parents=True)
        port = self._door.address[1]
        texts = {"systemctl": _SYSTEMCTL.format(python=sys.executable, port=port, key=self._key)}
        commands = {"migrator": [MIGRATOR], "scp": ["cp"]}
        for name, main in SCRIPTS.items():
            commands[name] = self._kafka.command(main, directory=self._bin, jvm=Jvm(), log_level="ERROR")
        texts |= {name: f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n' for name, words in commands.items()}
        for name, text in texts.items():
            (self._bin / name).write_text(text)
            (self._bin / name).chmod(0o755)

    def __enter__(self) -> Self:
        self._write_scripts()
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()
        for service in self._services.values():
            service.kill()
