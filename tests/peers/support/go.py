"""Programs of Go modules, built where Go is installed. A module's go.mod and go.sum say which content Go may take."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from migrator.parts.kafka_jars import cache_directory
from migrator.parts.processes import run_to_end

BUILD_SECONDS = 1200.0


def find_go() -> str | None:
    """The command; None where it is not installed."""
    return shutil.which("go")


def build(go: str, module: Path, package: str, program: Path, *, tests: bool = False) -> Path:
    """The program of a package, or of its tests. Modules and what was compiled stay in the project's cache.

    :param module: a directory with the go.mod and go.sum that name the package's module.
    :raises OperatorError: it cannot be fetched, has another checksum, or does not compile; with Go's output.
    """
    cache = cache_directory().parent / "go"
    environment = os.environ | {
        "GOMODCACHE": str(cache / "modules"),
        "GOCACHE": str(cache / "build"),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-modcacherw -mod=readonly",
        "GOWORK": "off",
    }
    command = [go, *(("test", "-c") if tests else ("build",)), "-o", str(program), package]
    run_to_end("go", command, timeout_seconds=BUILD_SECONDS, cwd=module, env=environment)
    return program
