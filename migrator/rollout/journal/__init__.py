"""The journal of rollouts: what was begun and done, on disk before each action.

`journal` has the format and reads it, `writer.RolloutJournal` appends. `progress.progress_of` folds the lines into how
far a rollout is, and `summary` makes of them what people read.

**What always holds.** A line is durable before the action that it announces. An incomplete last line is cut off; any
other damage is refused. The journal holds digests and names, never the content of a file or the output of a command.
"""
