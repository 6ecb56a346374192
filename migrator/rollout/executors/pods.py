"""What Kubernetes says of a pod. Pure."""

from __future__ import annotations

from typing import Self

from migrator.rollout.executors.presets import PHASES, RUNNING
from migrator.rollout.ports import LOOP
from migrator.values import value

AWAY = "not there"
_LOOPS = "CrashLoopBackOff"
_STARTS = ("", "ContainerCreating", "PodInitializing")
"""Why a container waits in a pod that is well."""


@value
class Pod:
    """``why``: reasons of the pod and of its waiting containers. ``restarts``: of its containers, by Kubernetes."""

    phase: str = AWAY
    why: tuple[str, ...] = ()
    restarts: int = 0

    @classmethod
    def of(cls, output: bytes) -> Self:
        """
        :param output: what the preset's `POD_STATUS` makes kubectl print; nothing for a pod that is not there.
        """
        phase, reason, waits, restarts, *_ = (*output.decode("utf-8", "replace").strip().split("/"), "", "", "")
        why = tuple(word for word in (reason, *waits.split()) if word not in _STARTS and word.isalnum())
        counts = (int(each) for each in restarts.split() if each.isascii() and each.isdecimal())
        return cls(phase if phase in PHASES else AWAY, why, sum(counts))

    @property
    def loops(self) -> bool:
        """Whether Kubernetes restarts a container in a loop. It says so from the second failure on."""
        return _LOOPS in self.why and self.restarts >= LOOP

    @property
    def ails(self) -> bool:
        """Whether the pod is something else than running or about to run."""
        return bool(self.why) or self.phase not in (RUNNING, "Pending", AWAY)

    def __str__(self) -> str:
        why = f" ({', '.join(dict.fromkeys(self.why))})" if self.why else ""
        loop = f": it restarts in a loop, {self.restarts} times so far" if self.loops else ""
        return f"{self.phase}{why}{loop}"
