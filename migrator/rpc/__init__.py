"""gRPC servers and clients, for the quorum's own transport and for operators.

* `server.GrpcServer` serves on a Unix socket (`operator_socket`), on ``migrator.grpc.listener`` with mutual TLS, or
  both.
* `doorkeeper.Doorkeeper` checks every call before its request is read, by the table and the certificates in `identity`.
  `operator_service` and `quorum_service` then translate it for the node.
* `operator_client.OperatorClient` is the command line's end; `find_controller` finds the active controller.
* `raft_transport.GrpcRaftTransport` is the `migrator.raft.transport.RaftTransport` between controllers of this program.

An example::

    async with connect(config=Path("controller.properties"), server=None) as controller:
        status = await controller.status()

**Contract.** Everything runs on the event loop; gRPC asks for renewed certificates on its threads (`tls`). The
node implements `StatusSource`, `VoterSource` and `QuorumView`. A client's failure is an `OperatorError` for operators
and a `TransportError` for the transport.

**What always holds.** A call that is not in `identity.DOORS` is refused. No call is decoded before its caller is
known. A voter can speak only for itself. Over TCP a client sends no request before the server's certificate has proved
one of the expected names.
"""

import os

# gRPC's core writes a line to standard error for each handshake that fails: every client could fill a disk.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
