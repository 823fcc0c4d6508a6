"""Given-up messages and a trace as the dashboard gets them, with hostile names."""

from shared.journal.trace_document import MessageTrace, TraceHop, TraceStep
from shared.resend.model import (
    DeadEntity,
    DeadGroup,
    DeadLetterReport,
    GroupChoice,
    Left,
    LetterDetail,
    LetterField,
    LetterLine,
    LetterList,
    ResendStep,
)
from tests.sample_status import HOSTILE

ENTITY = "west/payments/Subscriptions/replication/$DeadLetterQueue"
EXPIRED = GroupChoice("MaxDeliveryCountExceeded", "west/payments/Subscriptions/replication")
BODY = '{\n  "amount": "12.50",\n  "note": "<script>window.hacked = 1</script>"\n}'


def sample_report(*, may_resend: bool = True) -> DeadLetterReport:
    """Return two entities with messages, an empty one, and one that cannot be read."""
    groups = [
        DeadGroup(EXPIRED, 5000, 93_600.0, 40.0, 17),
        *(DeadGroup(GroupChoice(name, f"west/{name}", name), 1, 60.0, 60.0, 40) for name in HOSTILE),
    ]
    rejected = GroupChoice("SchemaMismatch", "west/payments", "payments-west-to-east")
    return DeadLetterReport(
        "2026-11-23T10:30:00Z",
        may_resend,
        shows_bodies=True,
        destinations=["east/payments", "west/payments"],
        entities=[
            DeadEntity("west/rejected", "west/rejected", "rejects", 3, groups=[DeadGroup(rejected, 3, 30.0, 4.0, 1)]),
            DeadEntity(ENTITY, ENTITY, "dead letters", 5006, groups=groups),
            DeadEntity("east/audit/$DeadLetterQueue", "east/audit/$DeadLetterQueue", "dead letters", 0),
            DeadEntity("north/x/$DeadLetterQueue", "north/x", "dead letters", None, unknown=f"no answer {HOSTILE[0]}"),
        ],
    )


def _line(number: int) -> LetterLine:
    return LetterLine(
        number, "2026-11-22T08:30:00Z", HOSTILE[number % 6], f"\u202eaccount-{number}", f"too often {HOSTILE[1]}", 512
    )


def sample_letters() -> LetterList:
    """Return a list that goes on."""
    return LetterList([_line(number) for number in range(17, 29)], has_more=True)


def sample_letter(*, has_body: bool = True) -> LetterDetail:
    """Return one message."""
    fields = [
        LetterField("message-id", "string", '"payment-17"'),
        LetterField("property amount", "decimal128", "12.50"),
        *(LetterField(f"property {name}", "string", f'"{name}"') for name in HOSTILE),
    ]
    body = BODY if has_body else None
    return LetterDetail(ENTITY, ENTITY, _line(17), EXPIRED, is_wrapped=False, fields=fields, body=body)


def sample_trace() -> MessageTrace:
    """Return two hops, of which the second one ends with a reject."""
    steps = [
        TraceStep("2026-11-22T08:30:00.012Z", 0.012, "task payments-west-to-east", "received", "west/payments"),
        TraceStep("2026-11-22T08:30:00.093Z", 0.093, "task payments-west-to-east", "sent", "east/payments"),
    ]
    last = [
        TraceStep("2026-11-22T08:30:01.500Z", 1.5, "task payments-east-to-north", "received", "east/payments"),
        TraceStep(
            "2026-11-22T08:30:31.500Z",
            31.5,
            "task payments-east-to-north",
            "rejected",
            "north/payments",
            f"too large {HOSTILE[0]}",
            ["delivery attempt 3"],
        ),
    ]
    hops = [
        TraceHop("payments-west-to-east", "west/payments", 0, 17, "2026-11-22T08:30:00.000Z", "sent", steps),
        TraceHop("payments-east-to-north", "east/payments", 0, 4, "2026-11-22T08:30:00.100Z", "rejected", last),
    ]
    return MessageTrace(HOSTILE[0], "2026-11-22T07", "2026-11-22T10", hops, ["a file: damaged"])


STEPS = (
    ResendStep(4000, 0, 0, 1000, []),
    ResendStep(998, 0, 0, 0, [Left(f"the target refuses it: too large {HOSTILE[0]}", 2, [44, 45])]),
)
