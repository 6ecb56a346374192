"""Files that stock Kafka 3.9.1 wrote; `tests.golden.make_log_directories` and `...make_zookeeper_dump` make them."""

from __future__ import annotations

from pathlib import Path

STOCK = Path(__file__).parents[2] / "golden" / "stock-3.9.1"
STATIC = STOCK / "static"
DYNAMIC = STOCK / "dynamic"
BATCH_FILES = sorted([*STOCK.rglob("*.log"), *STOCK.rglob("*.checkpoint")])


def name_of(path: Path) -> str:
    """Test id of a golden file."""
    return str(path.relative_to(STOCK))
