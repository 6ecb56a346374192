"""A seeded discrete-event simulator of the consensus core on bad networks, bad disks and bad clocks.

`python -m tests.simulation --seeds 300` runs seeds, `--seed 17 --trace` replays one, `--planted` shows that it finds
the bugs of `planted`. A run has two phases. In the first, chaos, only safety counts: `invariants` are checked after
every event. Then everything heals, and progress is demanded.
"""
