"""Who may connect, log in and do what: accounts, access control entries, and bounds of connections."""
