"""The state of a pod in Kubernetes, in one sentence."""

from __future__ import annotations

import pytest

from migrator.rollout.executors.presets import Pod


@pytest.mark.parametrize(
    ("printed", "said", "ails", "loops"),
    [
        ("", "not there", False, False),
        ("Running///0 0", "Running", False, False),
        ("Running///7", "Running", False, False),
        ("Pending//ContainerCreating/0", "Pending", False, False),
        ("Pending//ImagePullBackOff/0", "Pending (ImagePullBackOff)", True, False),
        ("Failed/Evicted//", "Failed (Evicted)", True, False),
        ("Running//CrashLoopBackOff/1", "Running (CrashLoopBackOff)", True, False),
        (
            "Running//CrashLoopBackOff/5 1",
            "Running (CrashLoopBackOff): it restarts in a loop, 6 times so far",
            True,
            True,
        ),
        ("\x1b[2J/$(x)//many", "not there", False, False),
    ],
)
def test_a_pod(printed: str, said: str, *, ails: bool, loops: bool) -> None:
    pod = Pod.of(f"{printed}\n".encode())
    assert (str(pod), pod.ails, pod.loops) == (said, ails, loops)
