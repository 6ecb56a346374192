"""How a drill protects its cluster, and what its processes show to other users of the machine.

`protection` has the certificates, logins and permissions: `InClear` protects nothing, `Secured` everything; `shaped`
protects as an operator's inventory says. `users` lists the users. `open_ports` looks at ports, arguments and
environments.

**What always holds.** Keys and passwords are made anew for each drill, and only this user can read their files.
"""
