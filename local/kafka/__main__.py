"""
Run a Kafka cluster with topics until a signal: `python -m local.kafka TOPIC …`.

It prints `ready URL` once clients may connect.
"""

import signal
import sys
from collections.abc import Sequence

from local.kafka.cluster import KafkaCluster

PARTITIONS = 4


def main(topics: Sequence[str]) -> None:
    """Create *topics* in a cluster of one broker, and keep it until SIGINT or SIGTERM."""
    ending = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with KafkaCluster() as cluster:
        for topic in topics:
            cluster.create_topic(topic, PARTITIONS)
        print(f"ready kafka://{cluster.servers}", flush=True)
        signal.sigwait(ending)


if __name__ == "__main__":
    main(sys.argv[1:])
