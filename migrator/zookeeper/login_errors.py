"""Why a login to ZooKeeper did not succeed."""

from __future__ import annotations


class LoginRefusedError(Exception):
    """One side does not accept the other. Says why, in words that go behind a colon."""
