"""`python -m tests.cli.support.patient ...`: the command `migrator`, which waits for answers as long as tests do.

Who answers is a controller in the process of the test: on a busy machine, and while several commands start, it may take
longer than the seconds that an operator should wait.
"""

from __future__ import annotations

import inspect
from functools import partialmethod

from migrator.cli.main import main
from migrator.rpc import ask_quorum, find_controller, operator_client
from migrator.rpc.operator_client import OperatorClient
from tests.patience import PATIENCE_SECONDS


def be_patient() -> None:
    """In this process."""
    ask_quorum.NAMED_SECONDS = ask_quorum.OTHERS_SECONDS = PATIENCE_SECONDS
    find_controller.ASK_SECONDS = operator_client.CONNECT_SECONDS = PATIENCE_SECONDS
    for name, method in inspect.getmembers(OperatorClient, inspect.isfunction):
        if "timeout" in inspect.signature(method).parameters:
            setattr(OperatorClient, name, partialmethod(method, timeout=PATIENCE_SECONDS))


if __name__ == "__main__":
    be_patient()
    main()
