"""`python -m tests.doors.costs.attackers FILE`: a process of attackers, until it is killed.

FILE is a `Spec` as JSON; beside it the process notes what it has done, some times a second.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from migrator.values import value
from tests.doors.costs.frames import FRAMES
from tests.doors.costs.moves import MOVES, Attacker, begin
from tests.doors.support.caller import Caller, Login

NOTE_SECONDS = 0.1
CONNECT_SECONDS = 30.0


@value
class Spec:
    """The work of the attackers in a process.

    :param bare: whether they connect and do nothing of TLS or a login.
    :param caller: see `Caller`; without a move of `MOVES` only its certificates count.
    """

    port: int
    move: str
    frame: str
    connections: int
    bare: bool
    authority: str | None
    key_and_certificate: tuple[str, str] | None
    user: str | None
    password: str | None

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @property
    def caller(self) -> Caller:
        login = None if self.user is None else Login(self.user, self.password or "")
        return Caller(self.authority, self.key_and_certificate, login)

    @property
    def connect(self) -> Callable[[], Any]:
        if self.bare:
            return lambda: socket.create_connection(("127.0.0.1", self.port), timeout=CONNECT_SECONDS)
        caller = self.caller
        return lambda: caller.connect(self.port)


def counts_of(path: Path) -> Counter[str]:
    """The counts of this file's process so far."""
    try:
        return Counter(json.loads(path.with_suffix(".counts").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Counter()


def forget(path: Path) -> None:
    """The counts of an earlier process of this file."""
    path.with_suffix(".counts").unlink(missing_ok=True)


def main(path: Path) -> None:
    fields = json.loads(path.read_text(encoding="utf-8"))
    if fields["key_and_certificate"] is not None:
        fields["key_and_certificate"] = tuple(fields["key_and_certificate"])
    spec = Spec(**fields)
    counts = Counter[str]()
    if spec.move in MOVES:
        begin(Attacker(spec.connect, FRAMES[spec.frame](), counts), MOVES[spec.move], spec.connections)
    else:
        from tests.doors.costs.grpc_moves import begin as begin_grpc  # noqa: PLC0415 - gRPC's threads, for these only

        begin_grpc(spec, counts)
    target, fresh = path.with_suffix(".counts"), path.with_suffix(".fresh")
    while True:
        fresh.write_text(json.dumps(dict(counts)), encoding="utf-8")
        fresh.replace(target)
        time.sleep(NOTE_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
