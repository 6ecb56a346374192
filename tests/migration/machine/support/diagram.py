"""`python -m tests.migration.machine.support.diagram` prints the picture that docs/migration.md shows."""

from __future__ import annotations

from itertools import groupby

from migrator.migration.machine.states import State
from migrator.migration.machine.transitions import TRANSITIONS, Finding, Trigger


def diagram() -> str:
    """The table as a Mermaid state diagram, for docs/migration.md. Losing the leadership is left out."""
    names = {state: state.name.lower() for state in State}
    lines = ["stateDiagram-v2", "    [*] --> inactive"]
    lines += [f"    {name} : {state.value}" for state, name in names.items() if name != state.value]
    edges = [
        (names[before], names[after], trigger.value if finding is Finding.ANY else f"{trigger.value}, {finding.value}")
        for before, ways in TRANSITIONS.items()
        for (trigger, finding), after in ways.items()
        if trigger is not Trigger.DEPOSED
    ]
    edges.sort(key=lambda edge: edge[:2])
    for (before, after), group in groupby(edges, key=lambda edge: edge[:2]):
        lines.append(f"    {before} --> {after} : {' / '.join(label for _, _, label in group)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(diagram())  # noqa: T201 - its purpose
