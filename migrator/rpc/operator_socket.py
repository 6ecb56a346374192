"""The directory of the operator's socket. Only its owner may enter it, and so only its owner, and root, may give orders
through the socket.

gRPC does not tell which user is at the other end of a socket, so the file system has to keep other users out.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from migrator.errors import OperatorError

SOCKET_DIRECTORY = "operator"
SOCKET_NAME = "operator.sock"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SocketDirectory:
    """The open directory. A socket's path may have only some hundred bytes, and a metadata directory's path may be
    longer. So the socket is reached through a descriptor of its directory, which also cannot be replaced by another
    directory.

    :param create: whether to create it, as the server does.
    """

    def __init__(self, metadata_directory: Path, *, create: bool) -> None:
        """
        :raises OperatorError: another user owns the directory or may write to it.
        :raises OSError: the directory cannot be made or opened, or is a symbolic link.
        """
        self.path = metadata_directory / SOCKET_DIRECTORY
        if create:
            self.path.mkdir(mode=0o700, exist_ok=True)
        self._descriptor = os.open(self.path, _FLAGS)
        try:
            self._check(frozenset({os.geteuid()}) if create else _servers(metadata_directory))
            if create:
                os.fchmod(self._descriptor, 0o700)
                self.remove_socket()
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def address(self) -> str:
        """The address of the socket for gRPC, valid in this process only."""
        return f"unix:/proc/self/fd/{self._descriptor}/{SOCKET_NAME}"

    def protect_socket(self) -> None:
        """Let only the owner use the socket, like the directory. Call this after the bind."""
        os.chmod(SOCKET_NAME, 0o600, dir_fd=self._descriptor)

    def remove_socket(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=self._descriptor)

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._descriptor)

    def _check(self, owners: frozenset[int]) -> None:
        found = os.fstat(self._descriptor)
        if found.st_uid not in owners:
            raise OperatorError(
                f"the directory belongs to user {found.st_uid}, so the socket in it may be anybody's",
                where=str(self.path),
                remedy="Remove the directory, and run this as the user that the controller runs as",
            )
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OperatorError(
                "other users may write to this directory, so the socket in it may be anybody's",
                where=str(self.path),
                remedy="Remove the directory, and restart the controller",
            )


def _servers(metadata_directory: Path) -> frozenset[int]:
    """The users whose server a client trusts: its own and root; for root also the metadata directory's owner."""
    mine = os.geteuid()
    return frozenset({mine, 0} | ({metadata_directory.stat().st_uid} if mine == 0 else set()))
