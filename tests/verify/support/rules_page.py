"""The table of rules that docs/verify.md shows: ``python -m tests.verify.support.rules_page`` writes it there anew."""

from __future__ import annotations

from pathlib import Path

from migrator.verify.canonical import RULES

PAGE = Path(__file__).parents[3] / "docs" / "verify.md"
BEGIN, END = "<!-- rules -->", "<!-- end of rules -->"


def table() -> str:
    """Everything between the two marks."""
    lines = ["| kind | field | equal when | what it is |", "|---|---|---|---|"]
    for rule in RULES:
        cells = (rule.kind, rule.field or "(any other)", rule.equality.value, rule.doc)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n" + "\n".join(lines) + "\n"


def printed() -> str:
    """The page's text there."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    content = PAGE.read_text(encoding="utf-8")
    head, _, rest = content.partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}{table()}{END}{rest.partition(END)[2]}", encoding="utf-8")
