"""Targets at real brokers as processes: ActiveMQ Artemis and Classic, RabbitMQ 3 and 4, and Kafka."""
