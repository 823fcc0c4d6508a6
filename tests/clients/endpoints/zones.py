"""A zone with an alias for each role, as docs/failover.md has it."""

ZONE = """\
$ORIGIN example.test.
$TTL 300
@ IN SOA ns hostmaster ( 2026112101 3600 600 86400 30 ) ; kept
@ NS ns
ns A 127.0.0.1
bus-send 30 CNAME west ; publishers
bus-receive 20 CNAME west
_azure_servicebus._amqp.west SRV 1 1 5671 west-example.servicebus.windows.net.
_azure_servicebus._amqp.east SRV 1 1 5671 east-example.servicebus.windows.net.
"""
