"""Regular expressions of property files, which were written for Java."""

from __future__ import annotations

import re
import warnings


def java_pattern(text: str) -> re.Pattern[str]:
    """A regular expression that means the same in Java and here.

    :raises ValueError: the pattern has another meaning in Java, or is no regular expression.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # nested sets, which only Java has
            return re.compile(text, re.ASCII)
    except (re.error, FutureWarning) as error:
        raise ValueError(f"{text!r} is no regular expression that can be used here: {error}") from error
