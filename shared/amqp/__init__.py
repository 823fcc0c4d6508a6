"""AMQP 1.0 values and message sections as bytes and back, without I/O."""
