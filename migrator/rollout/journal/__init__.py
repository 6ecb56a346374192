"""What a rollout has done: its journal on disk, how far it has come by it, and what it tells people."""
