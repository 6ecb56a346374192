"""gRPC servers and clients for the quorum and for operators."""

import os

# gRPC's core writes a line to standard error for each handshake that fails: whoever can connect could fill a disk.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
