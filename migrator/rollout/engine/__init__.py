"""What comes next, what drives it, and how it is shown: the acts of each step, one after the other."""
