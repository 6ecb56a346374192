"""Why a listener of the property file cannot be opened, and what to do, by the error of the operating system."""

from __future__ import annotations

import errno
import socket

from migrator.errors import OperatorError

_BY_NUMBER = {
    errno.EADDRINUSE: (
        "another program uses this port",
        "Stop this program ('ss -ltnp' shows which one it is), or choose another port",
    ),
    errno.EADDRNOTAVAIL: (
        "this machine does not have this address",
        "Write one that it has ('ip address' shows them). What others connect to belongs into advertised.listeners",
    ),
    errno.EACCES: (
        "this user may not open this port",
        "Choose a port above 1023, or give the program the right to open this one (CAP_NET_BIND_SERVICE)",
    ),
}


def cannot_listen(error: OSError, host: str, port: int, where: str) -> OperatorError:
    """The error for a listener that cannot be opened.

    :param where: the key, or the listener.
    """
    if isinstance(error, socket.gaierror):
        why, remedy = "the name is not known", "Correct the name, or make it known to this machine (DNS, /etc/hosts)"
    else:
        otherwise = (error.strerror or str(error), "Choose an address of this machine and a free port")
        why, remedy = _BY_NUMBER.get(error.errno or 0, otherwise)
    return OperatorError(f"this process cannot listen on {host}:{port}: {why}", where=where, remedy=remedy)
