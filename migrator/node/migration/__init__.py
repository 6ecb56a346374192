"""The migration on a real node: its ports, its status and orders, and the checks before a start."""
