"""The clock of a model cluster: time passes only while a rollout sleeps."""

from __future__ import annotations


class ModelClock:
    """Time passes only while somebody sleeps. `wall_jump_ms` is added to the time of day at each look. `asleep_ms`: how
    long the machine of the rollout was suspended."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.wall_jump_ms = 0
        self.asleep_ms = 0
        self._jumps = 0

    def wall_ms(self) -> int:
        self._jumps += self.wall_jump_ms
        return max(0, 1_700_000_000_000 + self.now_ms + self._jumps)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def since_boot_ms(self) -> int:
        return self.now_ms + self.asleep_ms

    async def sleep(self, seconds: float) -> None:
        self.now_ms += max(1, int(seconds * 1000))
