"""How a rollout begins, goes on and is turned back: what is looked at first, and the first lines of the journal."""
