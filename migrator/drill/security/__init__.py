"""How a drill protects its cluster, and what its processes show to other users of the machine.

`protection` has the certificates, logins and permissions: `InClear` for none, `Secured` for all of them; `shaped` has
those of an operator's inventory. `users` lists the users. `open_ports` and `process_watch` look at ports, arguments and
environments.

**What always holds.** Keys and passwords are made anew for each drill, and only this user can read their files.
"""
