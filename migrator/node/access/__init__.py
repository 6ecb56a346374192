"""Access of clients: accounts for logins, authorization, and bounds of connections and callers."""
