"""Targets of kind amqp at real brokers: RabbitMQ and ActiveMQ Artemis as processes."""
