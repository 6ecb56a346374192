"""The Kafka protocol: listener, client, TLS, SASL, Envelope, and the encoders of big messages.

The way of a request, by module::

    acceptor     accepts the connection: quotas, TLS handshake
    connection   login (`sasl`), then one request after another
    frames       size and bytes, with back-pressure; charged to the account book (`book`, `requests`)
    schemas      header and message class; `decode` and `encode` turn bytes into kio's messages and back
    envelope     a client's request that a broker has forwarded (KIP-590)
    server       `KafkaListener` puts these together and calls a `connection.Handler` of the node

`client.KafkaClient` is the other direction: it sends requests to one peer. `raft_codec` and `raft_transport` carry the
messages of `migrator.raft`, `observer` reads a quorum's log from outside, and `legacy` encodes the requests of a
ZooKeeper-era controller. `security`, `tls`, `stores` and ``*_settings`` read Kafka's own keys.

**Contract.** The listener calls ``handler.handle(context, body)`` on the event loop, once for each request, and sends
the response that it returns. Big messages are decoded and encoded off the event loop (`aside`). A client
call::

    client = KafkaClient(...)
    response = await client.request(request_type(18, 3)(...), timeout=5.0)

returns kio's response of the same version, or raises `TransportError` when no proper answer came.

**What always holds.** A malformed message of a peer is a `PeerError`: it ends that connection and nothing else. No
size, length or count is believed before it is checked against the frame and the limits. Responses of a connection are
in the order of its requests. Memory for requests and answers is bounded for each group of callers (`book`), and a peer
that does not send or read in time is cut off. Secrets are in no message, error or log.
"""
