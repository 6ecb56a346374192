"""What a rollout reads, writes and keeps on the hosts of nodes, and in its own directory."""
