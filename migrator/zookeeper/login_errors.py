"""The error of a failed login to ZooKeeper."""

from __future__ import annotations


class LoginRefusedError(Exception):
    """One side does not accept the other. The message is a reason that can follow a colon."""
