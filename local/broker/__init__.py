"""
A Service Bus and Event Hubs broker that the unmodified Azure SDKs talk to over AMQP.

1. `core` holds entities and messages and knows neither sockets nor AMQP frames; time reaches it as an argument.
2. `protocol` turns bytes into calls on the core and back, without I/O.
3. `server` and `thread` put sockets around both.
4. The bare message (properties, application properties, body, footer) leaves as the bytes that came in, but for the
   message id the service assigns, and the properties that rule actions and dead-lettering set.
"""
