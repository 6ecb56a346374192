"""The plan of a rollout as data: phases and steps, the modes of property files, and the commands of jobs. Pure.

`phases` has one object for each phase: its acts, when it is needed, its gates, why, and what undoes it. `plan.plan`
makes the steps of an inventory of them::

    steps = plan(inventory, Direction.FORWARD, canary="broker-3")  # all steps of the way, in order

`modes` rewrites a property file from one mode of the migration to another, `listeners` its listeners. `jobs` has the
words of commands and what their exit codes mean; `reports` makes lines for the terminal of what they print.

**What always holds.** No other file asks which phase a step is in: a difference between phases is a field of
`steps.PhaseRules`. A plan has every step, also those whose effect is there already.
"""
