"""What a rollout is to do, as data: its steps in their order, the modes of property files, and the words of jobs."""
