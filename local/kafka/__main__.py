"""
Run a Kafka cluster with topics until a signal: `python -m local.kafka TOPIC …`.

It prints `ready URL` once clients may connect.
"""

import argparse
import signal

from local.kafka.cluster import KafkaCluster

PARTITIONS = 4


def main() -> None:
    """Create the topics of the command line in a cluster, and keep it until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m local.kafka")
    parser.add_argument("topics", nargs="*")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--round-trip", type=int, default=0, help="milliseconds by which the answers are late")
    options = parser.parse_args()
    ending = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with KafkaCluster(options.brokers) as cluster:
        for topic in options.topics:
            cluster.create_topic(topic, options.partitions)
        for broker in range(1, options.brokers + 1):
            cluster.set_round_trip(broker, options.round_trip)
        print(f"ready kafka://{cluster.servers}", flush=True)
        signal.sigwait(ending)


if __name__ == "__main__":
    main()
