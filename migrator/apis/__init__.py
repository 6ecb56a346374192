"""Kafka's requests at a controller: translated into the controller's requests, authorized, and answered.

`registry.APIS` has one row for each API: who answers it, the right that its caller needs on the cluster, and its
handler. A handler is a function of one file of its group (`topics`, `brokers`, `security` ...)::

    call = Call(...)                       # kio's message, and its sender
    decision = registry.answer(call, image, context)
    # the caller appends decision.records, waits for their commit, and sends decision.response: kio's message

**Contract.** Pure: the caller passes image and context, and does the I/O. A refusal is a response, too, without
records. For a WRITE the caller has made sure that this node leads; otherwise it answers with `registry.refuse`.

**What always holds.** A handler decides only on those parts of a request to which its caller has the right, and answers
the others with Kafka's authorization errors. Error codes and texts are Kafka's where Kafka has them. Decisions about
rights leave a trail for the authorizer's log (`audit`), and orders are described for the logs of orders (`ordered`),
without values and secrets.
"""
