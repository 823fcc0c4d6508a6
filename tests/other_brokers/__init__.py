"""Targets at real brokers as processes: ActiveMQ Artemis, RabbitMQ and Kafka."""
