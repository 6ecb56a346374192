"""What people meet: each mistake made against real parts, with its message, exit code and remedy."""
