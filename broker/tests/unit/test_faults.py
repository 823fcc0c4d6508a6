"""Which operations a fault strikes, and faults as plain data."""

import json

import pytest

from busway_broker import errors
from busway_broker.faults import Effect, Fault, Faults, Operation
from shared.errors import ConfigError


def struck(fault: Fault, operations: int, operation: Operation = Operation.SEND, path: str = "orders") -> list[int]:
    faults = Faults()
    faults.add(fault)
    return [number for number in range(1, operations + 1) if faults.strike(operation, path)]


def test_strikes_from_the_nth_operation_on_and_a_limited_number_of_times() -> None:
    assert struck(Fault(effect=Effect.THROTTLE), 3) == [1, 2, 3]
    assert struck(Fault(effect=Effect.THROTTLE, at=2), 4) == [2, 3, 4]
    assert struck(Fault(effect=Effect.THROTTLE, at=2, times=1), 4) == [2]
    assert struck(Fault(effect=Effect.THROTTLE, at=2, every=3, times=2), 9) == [2, 5]


def test_the_seed_decides_which_operations_a_probability_strikes() -> None:
    first, again, other = (struck(Fault(effect=Effect.FILL, probability=0.2, seed=seed), 1000) for seed in (1, 1, 2))
    assert first == again != other
    assert 150 < len(first) < 250


@pytest.mark.parametrize(
    ("entity", "path", "is_struck"),
    [
        ("Orders", "orders", True),
        ("orders", "orders/$deadletterqueue", False),
        ("*/$deadletterqueue", "orders/$deadletterqueue", True),
        ("hub/*", "hub/partitions/0", True),
        ("*", "anything", True),
        ("invoices", "orders", False),
    ],
)
def test_strikes_entities_by_path(entity: str, path: str, is_struck: bool) -> None:
    assert bool(struck(Fault(effect=Effect.THROTTLE, entity=entity), 1, path=path)) is is_struck


def test_strikes_the_operations_it_names_and_no_tokens_unless_named() -> None:
    fault = Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SETTLE}))
    assert not struck(fault, 1, Operation.SEND)
    assert struck(fault, 1, Operation.SETTLE)
    assert not struck(Fault(effect=Effect.THROTTLE), 1, Operation.AUTHORIZE)


def test_the_first_fault_that_strikes_is_the_only_one() -> None:
    faults = Faults()
    faults.add(Fault(effect=Effect.THROTTLE, times=1))
    faults.add(Fault(effect=Effect.FILL))
    effects = [fault.effect for _ in range(2) if (fault := faults.strike(Operation.SEND, "q"))]
    assert effects == [Effect.THROTTLE, Effect.FILL]
    assert [each["seen"] for each in faults.plain()] == [1, 1]


def test_nothing_is_set_once_all_faults_are_spent_or_cleared() -> None:
    faults = Faults()
    assert not faults.is_set
    faults.add(Fault(effect=Effect.THROTTLE, times=1))
    assert faults.is_set
    faults.strike(Operation.SEND, "q")
    assert not faults.is_set
    faults.add(Fault(effect=Effect.THROTTLE))
    faults.clear()
    assert not faults.is_set
    assert faults.plain() == []


def test_a_fault_with_a_text_strikes_only_messages_that_contain_it() -> None:
    faults = Faults()
    faults.add(Fault(effect=Effect.CLOSE_LINK, containing="poison"))
    assert faults.strike(Operation.SEND, "q", b"good") is None
    assert faults.strike(Operation.SEND, "q") is None
    assert faults.strike(Operation.SEND, "q", b"a poison message") is not None


@pytest.mark.parametrize(
    "fault",
    [
        Fault(effect=Effect.DROP_CONNECTION, takes_effect=True, at=3, times=2),
        Fault(effect=Effect.DELAY, delay=1.5, entity="orders", operations=frozenset({Operation.SEND})),
        Fault(effect=Effect.CLOSE_LINK, containing="poison"),
        Fault(effect=Effect.REFUSE, condition=errors.NOT_FOUND, description="gone", probability=0.5, seed=7),
    ],
)
def test_plain_data_reads_as_the_same_fault(fault: Fault) -> None:
    assert Fault.read(json.loads(json.dumps(fault.plain()))) == fault


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "effect: is missing"),
        ({"effect": "explode"}, "effect: 'explode' is not a valid Effect"),
        ({"effect": "throttle", "entitty": "q"}, "entitty: unknown key"),
        ({"effect": "throttle", "at": True}, "at: has the wrong type"),
        ({"effect": "throttle", "operations": "send"}, "operations: has the wrong type"),
        ({"effect": "throttle", "operations": ["jump"]}, "operations: 'jump' is not a valid Operation"),
        ({"effect": "fill", "operations": ["settle"]}, "operations: fill cannot strike settle"),
        (
            {"effect": "lose-acknowledgement", "operations": ["transfer"]},
            "operations: lose-acknowledgement cannot strike transfer",
        ),
        ({"effect": "throttle", "at": 0}, "at: is 0"),
        ({"effect": "throttle", "times": 0}, "times: is 0"),
        ({"effect": "throttle", "probability": 0}, "probability: is 0.0"),
        ({"effect": "delay"}, "delay: is 0.0 seconds"),
        ({"effect": "delay", "delay": float("inf")}, "delay: is inf seconds"),
        ({"effect": "throttle", "delay": float("nan")}, "delay: is nan seconds"),
        ({"effect": "delay", "delay": 10**400}, "delay: int too large to convert to float"),
        ({"effect": "delay", "delay": 1, "takes_effect": True}, "takes_effect: has no meaning for delay"),
    ],
)
def test_an_invalid_fault_is_refused_with_the_reason(data: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Fault.read(data)
    assert str(caught.value).startswith(problem)
    assert len(caught.value.problems) == 1
