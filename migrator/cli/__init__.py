"""The commands of `migrator`, one file each: parse the options, call the room, print the result.

`main.main` is the entry point. It imports the module of a command only when that command runs, and turns errors into
exit codes: 0 done or yes, 1 no, 2 refused or failed, 70 a defect of this program, 130 interrupted. The docstring of a
command's function is its help text, which names the exit codes::

    @click.command()
    @controller_options
    def command(at: ControllerAt) -> None:

**Contract.** A command prints only through `terminal`, which makes control characters harmless. Standard output has the
result; progress, questions and errors go to standard error. With ``--json`` standard output has JSON only, also for an
error. A failure is an `OperatorError`. The operator confirms an action that cannot be undone with the cluster's id
(`confirm`).

**What always holds.** When Ctrl-C, SIGTERM or SIGHUP ends a command that changes something, a sentence says in which
state it leaves the cluster (`interrupted`). A defect has exit code 70, in whatever thread or task it happened
(`defects`).
"""
