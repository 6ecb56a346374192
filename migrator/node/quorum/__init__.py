"""Consensus on a real log, clock and network: the runner of the core, its transports, and descriptions of the
quorum."""
