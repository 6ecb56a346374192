"""How long tests wait for what has to come: they end earlier when it comes, and it comes late on a machine in use."""

PATIENCE_SECONDS = 300.0
