"""The cost of callers: attacks on every door of a controller by every kind of caller, measured, beside stock Kafka.

`table` is the table of attacks, `run` measures one of them, ``python -m tests.doors.costs`` prints all.
"""
