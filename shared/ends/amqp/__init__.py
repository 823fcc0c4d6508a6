"""Queues, topics and addresses of another AMQP 1.0 broker, such as RabbitMQ."""
