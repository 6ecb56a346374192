"""A rollout: the whole migration of a cluster from one inventory, forward or back, one step after the other.

The inventory names the nodes and how to reach them. `plan` makes the steps, each of a few acts: check gates, edit a
property file, restart, run a command. `engine` does them; `journal` notes each before and after. A command such as
`migrator rollout apply` puts the parts together::

    site = site_of(Path("inventory.yaml"))
    async with parts_at(site, print) as (parts, session):
        with closing(RolloutJournal(site.state)) as journal:
            await open_rollout(parts, journal)                       # looks, refuses, then the first lines
            await RolloutRun(parts, journal, site.state, confirm, accept).run()

Decisions are pure: they know the journal and an `Observation`, and reach the world only through the four ports of
`ports`: `executors` touches nodes, `seeing` looks at the cluster, `lock` keeps other rollouts out, and a clock. `gates`
says what has to be well before and after a step, `files` reads and keeps property files, `opening` begins and turns
back.

**What always holds**

* One rollout works on a cluster at a time.
* An act that changes something is in the journal on disk before it is done. A command may be killed at any moment: the
  next one looks at what was begun, and continues.
* A broker or controller is stopped only right after its gates were found open. What could not be looked at keeps a gate
  shut. A process that was stopped is started again, also after a failure.
* A property file is written only if it is as the rollout has last seen it. Its mode, owner and comments stay, and it is
  kept as it was.
* Contents of files travel by standard input and output only, never in arguments, the journal or a message.
* The migration ends only after a person's yes. Until then a rollout can go back; afterwards `migrator reopen` comes
  first.
"""
