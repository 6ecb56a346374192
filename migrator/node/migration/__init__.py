"""The migration on a real node: its ports, its status, the operator's orders, and checks before a start."""
