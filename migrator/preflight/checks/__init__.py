"""The checks of preflight, one file for each subject. Each file ends with its part of the table (``CHECKS``).

A check is a pure function: `Evidence` -> a `Found` for each case, with its place and a text. It finds nothing where a
fact is unknown; `Evidence.unknown` has that fact already. A text never has the value of a secret.
"""
