"""How the model brings a large file here: as a small one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path

from migrator.rollout.nodes import Node


class FetchesAsItReads(ABC):
    @abstractmethod
    async def read(self, node: Node, path: str) -> bytes | None: ...

    async def fetch(self, node: Node, path: str, file: Path, *, seconds: float) -> bool:
        content = await self.read(node, path)
        if content is not None:
            await asyncio.to_thread(file.write_bytes, content)
        return content is not None
