"""`python -m tests.observe.support.next_table` prints what comes next in each state, for docs/migration.md."""

from __future__ import annotations

from migrator.observe.next_steps import BLANK, NO_LEADER, ROWS

NAMES = {
    "zookeeper": "BROKERS IN ZOOKEEPER MODE",
    "kraft": "BROKERS IN KRAFT MODE",
    "on": "CONTROLLERS WITH THE MIGRATION ON",
    "off": "CONTROLLERS WITH THE MIGRATION OFF",
    "down": "BROKERS THAT DO NOT SERVE",
}


def table() -> str:
    """Markdown."""
    rows = [
        (", ".join(row.states) + (f"; {row.case}" if row.case else ""), row.text.format(**NAMES))
        for row in ROWS
        if row.states != ("inactive",)
    ]
    rows += [("no controller leads", NO_LEADER), ("no controller was ever elected", BLANK)]
    lines = ["| state | next |", "|---|---|", *(f"| {state} | {text} |" for state, text in rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")  # noqa: T201
