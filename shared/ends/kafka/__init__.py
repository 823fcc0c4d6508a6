"""Topics of Kafka brokers, and of the endpoint of Event Hubs for them."""
