"""A real sshd on loopback with its own port, keys and configuration; it ends with its context.

Without sshd on the machine the test is skipped, but never in continuous integration.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pytest

from migrator.parts.processes import ChildProcess, free_port, port_is_open
from tests.patience import PATIENCE_SECONDS

PROGRAM = "/usr/sbin/sshd"
PRIVILEGE_SEPARATION = Path("/run/sshd")
"""Debian's sshd wants this empty directory, which its service makes."""


def require_sshd() -> None:
    """Skips where there is no sshd that could be started, but never in continuous integration."""
    missing = "" if Path(PROGRAM).exists() and shutil.which("ssh") else "openssh-server is not installed"
    if not missing and os.geteuid() == 0 and not PRIVILEGE_SEPARATION.exists():
        PRIVILEGE_SEPARATION.mkdir(mode=0o755)
    if missing and "CI" in os.environ:
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


class LoopbackSshd:
    """A host that is this machine. ``bin`` comes first in the PATH of what runs there."""

    def __init__(self, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port = free_port()
        self.bin = directory / "bin"
        self.bin.mkdir(parents=True)
        for name in ("host_key", "user_key"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
            subprocess.run(key, check=True)
        public = (directory / "host_key.pub").read_text()
        (directory / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")
        shutil.copy(directory / "user_key.pub", directory / "authorized_keys")
        variables = {"PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin", **(environment or {})}
        settings = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": directory / "host_key",
            "AuthorizedKeysFile": directory / "authorized_keys",
            "PidFile": "none",
            "UsePAM": "no",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "AllowUsers": getpass.getuser(),
            "MaxStartups": "100",
            "SetEnv": " ".join(f'{name}="{text}"' for name, text in variables.items()),
        }
        self._config = directory / "sshd_config"
        self._config.write_text("".join(f"{name} {text}\n" for name, text in settings.items()))
        self.process: ChildProcess | None = None

    @property
    def ssh(self) -> str:
        """The variable ``ssh`` of an executor: a command that trusts this host, and knows nothing else."""
        options = {
            "Port": self.port,
            "IdentityFile": self.directory / "user_key",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.directory / "known_hosts",
            "GlobalKnownHostsFile": "none",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
            "ConnectTimeout": "10",
        }
        words = [word for name, text in options.items() for word in ("-o", f"{name}={text}")]
        return shlex.join(["ssh", "-T", "-F", "none", *words])

    def start(self) -> Self:
        """Wait until it listens."""
        command = [PROGRAM, "-D", "-e", "-f", str(self._config)]
        self.process = ChildProcess("sshd", command, output=self.directory / "sshd.log")
        self.process.wait_until(lambda: port_is_open(self.port), "sshd listens", timeout_seconds=PATIENCE_SECONDS)
        return self

    def stop(self) -> None:
        """Its connections end with it, as those of a host that falls over."""
        if self.process is not None:
            self.process.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
