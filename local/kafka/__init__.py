"""A Kafka cluster in this process: the mock cluster of librdkafka, which real clients reach over sockets."""
