"""Java's own keytool."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from migrator.parts.java import Jvm
from tests.patience import PATIENCE_SECONDS

_JVM = tuple(f"-J{flag}" for flag in Jvm().flags)


def keytool(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Its output."""
    command = ("keytool", *_JVM, *arguments)
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environment
    )
    return done.stdout
