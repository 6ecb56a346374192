"""The login file of a Java process, read in this one: the very file that stock brokers and controllers are started with
(``-Djava.security.auth.login.config``)."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

from migrator.config.jaas import LoginModule, parse_sections


def parse_jaas(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """The sections of a file by name, with system properties as Java would have them in this process.

    :raises JaasSyntaxError: the text does not follow the grammar, or names a property that only a Java machine knows.
    """
    return parse_sections(text, _system_properties())


def _system_properties() -> dict[str, str]:
    found = {"/": os.sep, "file.separator": os.sep, "path.separator": os.pathsep, "line.separator": os.linesep}
    found |= {"user.dir": str(Path.cwd()), "java.io.tmpdir": "/tmp"}  # noqa: S108 (Java's default)
    with suppress(KeyError):  # a user without an entry: Java does not know a home either
        own = pwd.getpwuid(os.getuid())
        found |= {"user.home": own.pw_dir, "user.name": own.pw_name}
    return found
