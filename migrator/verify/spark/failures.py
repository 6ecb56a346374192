"""Brings an error from a Spark worker to the operator.

Of a worker's exception, Spark passes on only the text, among the stacks of two languages. So a reader packs an
`OperatorError` into one word of that text, and the driver unpacks it: the operator sees the original error, with its
place and its remedy. A defect of a reader stays a defect: it says nothing about either side.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from migrator.errors import InvariantViolation, MigratorError, OperatorError

DEFECTS = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, NameError, RuntimeError),
    *(TypeError, ValueError),
)
"""The exceptions of a wrong program. Faults of files and peers have separate errors."""
_PACKED = re.compile(r"packed-operator-error:([A-Za-z0-9_=-]+)")
_DEFECT = re.compile(r"packed-defect:([A-Za-z0-9_=-]+)")
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_RAISED = re.compile(r"^\s*(?:[A-Za-z_]+\.)*[A-Za-z_]+(?:Error|Violation|Exception): (.+)$", re.MULTILINE)
_AGAIN = "Correct this problem and run the command again"


class PackedError(MigratorError):
    """An `OperatorError` in the form in which it leaves a Spark worker."""


@contextmanager
def packing(where: str = "metadata log") -> Iterator[None]:
    """Pack the errors of a reader. Used at the outermost level of each function that Spark calls in a worker.

    :param where: the log whose records may contradict one another.
    """
    try:
        yield
    except OperatorError as error:
        raise PackedError(_pack(error)) from error
    except InvariantViolation as error:
        raise PackedError(
            _pack(OperatorError(str(error), where=where, remedy="Compare with another controller's log"))
        ) from error
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise PackedError(_pack(OperatorError(what, where=str(error.filename or ""), remedy=_AGAIN))) from error
    except DEFECTS as error:
        said = base64.urlsafe_b64encode(f"{type(error).__name__}: {error}".encode(errors="replace")).decode()
        raise PackedError(f"packed-defect:{said}") from error


def operator_error(error: Exception) -> OperatorError | InvariantViolation:
    """The operator's error for an exception that Spark raised in the driver."""
    text = str(error)
    defect = _DEFECT.search(text)
    if defect is not None:
        return InvariantViolation(f"a reader in Spark: {base64.urlsafe_b64decode(defect[1]).decode()}")
    packed = _PACKED.search(text)
    if packed is not None:
        what, where, remedy, _ = _unpacked(packed[1])
        return OperatorError(f"could not tell: {what}", where=where, remedy=remedy)
    missing = _MISSING_MODULE.search(text)
    if missing is not None:
        return OperatorError(
            f"could not tell: the Python of Spark's workers has no {missing[1].partition('.')[0]!r}",
            where="spark.pyspark.python",
            remedy="Spark's workers get only pure Python packages. Install the packages that "
            "docs/verify.md lists on the workers, or give a Python that has them: --conf spark.pyspark.python=PATH",
        )
    raised = _RAISED.findall(text)
    cause = raised[-1] if raised else text.partition("\n")[0] or type(error).__name__
    return OperatorError(f"could not tell: {cause}", where="Spark", remedy=_AGAIN)


def is_gone(error: BaseException) -> bool:
    """Whether a worker found that a file has disappeared."""
    packed = _PACKED.search(str(error))
    return packed is not None and bool(_unpacked(packed[1])[3])


def _unpacked(word: str) -> tuple[str, str, str, bool]:
    what, where, remedy, gone = json.loads(base64.urlsafe_b64decode(word))
    return what, where, remedy, gone


def _pack(error: OperatorError) -> str:
    gone = isinstance(error.__cause__, FileNotFoundError)
    content = json.dumps([error.what, error.where, error.remedy, gone]).encode()
    return f"packed-operator-error:{base64.urlsafe_b64encode(content).decode()} ({error})"
