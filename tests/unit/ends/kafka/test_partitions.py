from shared.ends.kafka.partitions import MOST_PRODUCERS, Partitions, partition_of


def test_a_key_has_the_partition_that_java_clients_choose() -> None:
    # Hashes of org.apache.kafka.common.utils.UtilsTest.testMurmur2.
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    assert {key: partition_of(key, 2**31) for key in hashes} == {key: each & 0x7FFFFFFF for key, each in hashes.items()}


def test_partitions_of_one_broker_have_different_producers() -> None:
    partitions = Partitions([1, 2, 1, 2, 3, 1])
    assert partitions.producers == 3
    numbers = [0, 0, 1, 1, 0, 2]
    for key in map(str, range(100)):
        assert partitions.producer_of(key) == numbers[partition_of(key, 6)]
    assert {partitions.next_producer() for _ in range(3)} == {0, 1, 2}


def test_there_are_not_more_producers_than_a_machine_has_room_for() -> None:
    assert Partitions([1] * 100).producers == MOST_PRODUCERS


def test_a_topic_without_known_partitions_has_one_producer() -> None:
    assert (Partitions().producers, Partitions().producer_of("k"), Partitions().next_producer()) == (1, 0, 0)
