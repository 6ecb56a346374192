"""One rollout a cluster: the lock, and the places where it is kept."""
