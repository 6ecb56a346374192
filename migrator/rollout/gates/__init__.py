"""Gates: the conditions before and after a step.

`gates.judge` says whether a gate is open: the gate and a look at the cluster -> who is waited for, and what to do.
`gatekeeper.Gatekeeper` looks again and again until all gates of a check are open. `excuses` removes from a look the
parts for which no gate waits: nodes that are gone for good, and partitions that were unhealthy before the rollout.

**What always holds.** What could not be looked at keeps a gate shut. Every wait ends: after the time of the inventory,
at once when nothing can open the gate any more, when a process that the rollout has started has ended, or when the
operator asks for an end. All files except `gatekeeper` are pure.
"""
