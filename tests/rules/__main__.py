"""The rules of `make check` beside the linters: one table, each file read once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.rules import messages, sentences, tidy, unused
from tests.rules.sources import Source, tracked

RULES: Mapping[str, Callable[[Sequence[Source]], Iterator[str]]] = {
    "nothing forbidden stands anywhere": tidy.forbidden,
    "a file is read in one sitting": tidy.long_files,
    "every module says what it is for": tidy.silent_modules,
    "every room is in docs/architecture.md": tidy.rooms_without_words,
    "every decision is in docs/adr/README.md": tidy.decisions_without_a_row,
    "who starts a cluster says in which lane": tidy.clusters_in_the_short_lane,
    "what continuous integration names exists": tidy.named_and_gone,
    "helpers of tests are in support folders": tidy.stray_helpers,
    "an error says what happened, where, and what to do": messages.errors_without_the_form,
    "the problem of a property file begins with a noun": messages.problems_without_a_noun,
    "every exception of these rules is still one": messages.exceptions_that_are_none,
    "no sentence of a rollout ends with a full stop": sentences.full_stops,
    "why and undo of a phase are parts of a line": sentences.whys_that_are_no_part_of_a_line,
    "only what the product uses is in the product": unused.unused,
    "every module of the product has a user in the product": unused.modules_of_nobody,
}


def broken(sources: Sequence[Source]) -> Iterator[str]:
    """A line for each fault, below the rule that it breaks."""
    for words, rule in RULES.items():
        if faults := list(rule(sources)):
            yield f"{words}:"
            yield from (f"  {fault}" for fault in faults)


if __name__ == "__main__":
    sys.exit("\n".join(broken(tracked())) or 0)
