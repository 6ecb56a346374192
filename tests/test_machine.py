"""Nothing of a controller reaches around its machine (`migrator.machine`) to the operating system.

What runs below `migrator.node.node._assemble` gets time, chance, threads, files and addresses from `machine()`, and
timers, connections and results of threads from the event loop: so whole controllers can be simulated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "migrator"
ROOMS = ("apis", "controller", "image", "log", "node", "observe", "raft", "records", "rpc", "wire", "supervision.py")
OUTSIDE = {
    "log/dump.py": "a command reads a file",
    "log/lookup.py": "a command reads a log",
    "node/access/connection_bounds.py": "the limit of open files is the process's; hosts of a setting are looked up",
    "observe/authorizer_log.py": "the log of the authorizer has a thread and files of its own",
    "observe/logs.py": "the log of the process",
    "observe/loop_health.py": "the garbage collector is the process's",
    "observe/metrics_access.py": "the metrics endpoint has a thread and files of its own",
    "observe/metrics_endpoint.py": "the metrics endpoint has a thread and sockets of its own",
    "observe/pages": "commands write pages",
    "rpc/__init__.py": "gRPC reads its verbosity from the environment",
    "rpc/operator_socket.py": "the operator's socket is a file that gRPC binds",
    "rpc/stubs": "generated",
    "wire/sasl": "logins are tested beside real clients",
    "wire/stores.py": "certificates are files of OpenSSL",
    "wire/tls.py": "certificates are files of OpenSSL",
}
"""The modules that are not simulated, with the reasons."""
REFUSED = frozenset(
    (
        "ctypes", "fcntl", "gc", "mmap", "multiprocessing", "platform", "resource", "secrets", "select", "selectors",
        "shutil", "signal", "subprocess", "tempfile", "time",
    )
)  # fmt: skip
"""Modules."""
ALLOWED: dict[str, Callable[[str], bool]] = {
    "os": lambda name: name.startswith(("O_", "SEEK_")) or name in {"stat_result", "geteuid"},
    "socket": lambda name: name.startswith(("AF_", "SOCK_", "AI_")) or name == "socket",
    "threading": lambda name: name in {"Lock", "local"},
    "random": lambda name: name == "Random",
    "concurrent.futures": lambda name: name in {"Future", "Executor"},
    "asyncio": lambda name: not name.startswith(("create_subprocess", "new_event_loop", "run", "Runner", "subprocess")),
    "io": lambda name: name in {"BytesIO", "StringIO", "TextIOWrapper"},
    "uuid": lambda name: name == "UUID",
}
"""Of these modules, what does nothing by itself."""
OF_PATHS = frozenset(
    (
        "chmod", "exists", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "mkdir",
        "read_bytes", "read_text", "rename", "rglob", "rmdir", "samefile", "stat", "symlink_to", "touch",
        "unlink", "write_bytes", "write_text",
    )
)  # fmt: skip
"""Methods of paths that look at the disk."""
EXCEPTIONS = {
    ("log/files.py", "NewFile"): "of commands",
    ("log/files.py", "_make_alike"): "of commands",
    ("log/files.py", "file_digest"): "of commands",
    ("log/files.py", "write_durably"): "`like` is for the files of commands",
    ("log/lock.py", "is_in_use"): "of commands",
    ("log/lock.py", "holder_note"): "of commands",
    ("observe/certificates.py", "CertificateBook"): "a date is spelled",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        place = PACKAGE / room
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            name = path.relative_to(PACKAGE).as_posix()
            if not any(name == outside or name.startswith(f"{outside}/") for outside in OUTSIDE):
                yield name, ast.parse(path.read_text(encoding="utf-8"))


def reaches_around(tree: ast.AST, aliases: dict[str, str]) -> Iterator[str]:
    """The calls of a piece of a module to the operating system."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = aliases.get(ast.unparse(node.value))
            if module in REFUSED or (module in ALLOWED and not ALLOWED[module](node.attr)):
                yield f"{module}.{node.attr}"
        if isinstance(node, ast.Call):
            yield from called_around(node)
        if isinstance(node, ast.ImportFrom) and (node.module in REFUSED or node.module in ALLOWED):
            allowed = ALLOWED.get(node.module)
            yield from (f"{node.module}.{each.name}" for each in node.names if not (allowed and allowed(each.name)))


def called_around(call: ast.Call) -> Iterator[str]:
    """A path that looks at the disk by itself, a file that is opened, chance without a seed."""
    match call.func:
        case ast.Attribute(value, name) if name in OF_PATHS and ast.unparse(value) != "machine()":
            yield f".{name}()"
        case ast.Attribute(value, "now" | "today" | "utcnow") if ast.unparse(value).endswith(("date", "datetime")):
            yield "datetime.now()"
        case ast.Name("open"):
            yield "open()"
        case ast.Attribute(_, "open") if is_mode(call.args):
            yield ".open()"
        case ast.Name("Random") | ast.Attribute(_, "Random") if not call.args:
            yield "Random()"


def is_mode(arguments: list[ast.expr]) -> bool:
    """Whether that is what a file is opened with: nothing, a text, and more. A segment, a log has another ``open``."""
    return not arguments or isinstance(arguments[0], ast.Constant)


def found_in(name: str, tree: ast.Module) -> Iterator[str]:
    imported = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    aliases = {alias.asname or alias.name: alias.name for alias in imported}
    aliases |= {root: root for alias in imported if not alias.asname for root in (alias.name.partition(".")[0],)}
    for part in tree.body:
        if (name, getattr(part, "name", "")) not in EXCEPTIONS:
            yield from (f"{name}: {what}" for what in reaches_around(part, aliases))


def test_nothing_of_a_controller_reaches_around_its_machine() -> None:
    found = [what for name, tree in modules() for what in found_in(name, tree)]
    assert not found, "ask migrator.machine.machine() or the event loop, or name the module in OUTSIDE"


@pytest.mark.parametrize(
    "text",
    [
        "import time\ndef f(): return time.monotonic()",
        "from time import monotonic",
        "import os\ndef f(): os.fsync(3)",
        "def f(path): return path.read_bytes()",
        "from datetime import UTC, datetime\ndef f(): return datetime.now(UTC)",
        "from random import Random\ndef f(): return Random()",
        "from concurrent.futures import ThreadPoolExecutor",
        "def f(): return open('f')",
        "import socket as net\ndef f(): net.create_server(('', 1))",
        "import os.path\ndef f(): os.fsync(3)",
        "import concurrent.futures\ndef f(): concurrent.futures.ThreadPoolExecutor()",
        "import random\ndef f(): return random.Random()",
        "import datetime\ndef f(): return datetime.datetime.now()",
        "from datetime import datetime\ndef f(): return datetime.utcnow()",
        "from datetime import date\ndef f(): return date.today()",
        "from uuid import uuid4",
        "import uuid\ndef f(): return uuid.uuid1()",
        "def f(path): return path.open('rb')",
        "def f(path): path.touch()",
        "def f(path): path.rename('other')",
        "import io\ndef f(): return io.open('f')",
        "import asyncio\ndef f(): return asyncio.create_subprocess_exec('f')",
        "import platform\ndef f(): return platform.node()",
    ],
)
def test_whatever_reaches_around_is_found(text: str) -> None:
    assert list(found_in("any.py", ast.parse(text)))


def test_what_is_outside_is_there() -> None:
    assert [name for name in OUTSIDE if not (PACKAGE / name).exists()] == []
    parts = {(name, getattr(part, "name", "")) for name, tree in modules() for part in tree.body}
    assert [named for named in EXCEPTIONS if named not in parts] == []
