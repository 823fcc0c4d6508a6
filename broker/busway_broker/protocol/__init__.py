"""AMQP 1.0 as the Azure SDKs speak it, from bytes to the core and back, without I/O."""
