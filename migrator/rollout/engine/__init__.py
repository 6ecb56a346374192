"""The engine of a rollout: decides which step comes next, and does its acts one after the other.

`apply.RolloutRun.run` drives it. It looks at the cluster, takes the step that `decisions` says, and notes the end or
the failure. `apply.StepRun` does one step: gates (`step`), files and processes (`acts`), the soak (`soak`), jobs
(`job_acts`). A step is handed over once, in a `step.StepContext`. `decisions` also says which gates a step has, and
whether an act has to be done. `preview` and `standing` show what comes and what is.

**What always holds.** Before an act changes anything, the lock is checked, and the journal on disk says that it begins.
A new run decides from the journal and the cluster alone, so a run may be killed at any moment. The gates before a stop
are asked as the last thing before it. No gate delays the start of a process that was stopped.
"""
