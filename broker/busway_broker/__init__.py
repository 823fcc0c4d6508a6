"""
A Service Bus and Event Hubs broker that the unmodified Azure SDKs talk to over AMQP.

1. `core` holds entities and messages. It has no sockets and no AMQP frames, and gets the time from a clock.
2. `protocol` turns bytes into calls on the core and back, without I/O.
3. `server`, `listener` and `socket_peer` add sockets; `thread` runs them in a thread.
4. `storage` keeps the state in a file, `admin` serves the administration over HTTP.
5. The bare message (properties, application properties, body, footer) is delivered as the bytes that were sent, except
   for a message id that the service assigns, and properties that rule actions and dead-lettering set.
"""
