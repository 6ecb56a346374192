"""Tries to get into a secured cluster of a drill without permission (`migrator drill --secure`).

`every_door.try_doors` tries all doors once: brokers, controllers, gRPC, metrics and ZooKeeper. `under_attack` attacks
the controllers without a pause during a step. `intruder` makes the requests, `leaks` searches files for secrets.

**What always holds.** An attempt without an answer proves nothing: it is repeated, and in the end reported as unproved,
never as denied. Each door must also open to the right login, or a refusal there would prove nothing.
"""
