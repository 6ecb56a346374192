"""One comparison with its consequences: the report to the active controller, the repair, and a second comparison.

`verify` runs a `VerifyJob` once or again and again. A repair happens only if ``repair`` agrees, and then everything is
compared anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pyspark.sql import SparkSession

from migrator.errors import ExitCode
from migrator.values import value
from migrator.verify import report
from migrator.verify.repair import OpenActive
from migrator.verify.verdict import Verdict, VerifyRequest
from migrator.verify.verify import Begin, unheard, verify_in


@value
class VerifyJob:
    """``report_to``: finds the active controller, to which each verdict is reported. ``repair``: may repair the
    differences; when it returns that it did, everything is compared again."""

    request: VerifyRequest
    report_to: OpenActive | None = None
    repair: Callable[[Verdict], bool] | None = None

    def run(self, spark: SparkSession, tell: Callable[[str], None], begin: Begin = unheard) -> Verdict:
        """Compare, and return the last verdict.

        :param tell: called with the answer of the controller.
        :param begin: called with each phase.
        :raises OperatorError: as in `verify_in`; as in ``repair``; or no controller accepts the report.
        """
        verdict = self._compared(spark, tell, begin)
        if verdict.comparison.differences and self.repair is not None and self.repair(verdict):
            verdict = self._compared(spark, tell, begin)
        return verdict

    def _compared(self, spark: SparkSession, tell: Callable[[str], None], begin: Begin) -> Verdict:
        if self.report_to is None:
            return verify_in(spark, self.request, begin=begin)
        beginning = asyncio.run(report.begin(self.report_to))
        verdict = verify_in(spark, self.request, frozen=beginning.finishing, begin=begin)
        if verdict.exit_code is not ExitCode.REFUSED:
            tell(asyncio.run(report.report(self.report_to, beginning, verdict)).sentence)
        return verdict
