"""Lets a drill run `migrator rollout` on its cluster, as an operator would.

`desk.RolloutDesk` writes the inventory and runs the commands. The executor of that inventory asks `services.Services`
to stop and start nodes, through the command `ask`.

**What always holds.** Each node that a rollout starts is a child process of the drill, and ends with it.
"""
