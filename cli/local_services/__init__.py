"""What Azure and Kafka are on a laptop, besides the broker and the host: Event Grid and a Kafka cluster."""
