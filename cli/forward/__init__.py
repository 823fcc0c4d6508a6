"""`busway forward`: send the records of a Kafka topic to an event hub."""
