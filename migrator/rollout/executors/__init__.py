"""Executors touch the nodes of an inventory: they run commands made from templates, on this machine or on another.

`executors.NodeExecutor` is the port `migrator.rollout.ports.Executor`. Per node it takes the templates of a preset
(`presets`), unless the inventory has its own, and makes argument lists of them; `bounded` runs these, and checks a
file as it arrives. `scripts` has the shell scripts that read and write files on a host, and `local_process` finds,
stops and starts a process without a service manager.

**What always holds.** No value and no file content becomes part of a program or passes a shell without quotes: values
are whole arguments, contents and their digests travel by standard input and output. A command ends within its time, and
what is kept of its output is bounded. A file arrives completely, by its digest, or not at all.
"""
