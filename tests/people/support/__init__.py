"""How people run commands."""
