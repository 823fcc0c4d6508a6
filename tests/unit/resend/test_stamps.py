"""How a run recognises its own copies: by what only a run with the same ledger can write."""

import asyncio
from pathlib import Path

import pytest

from cli.letters.ledger_file import LedgerFile
from shared.amqp.values import Value, string
from shared.message.message import Message
from shared.resend.edits import RESENT_FROM, Edits, resent_key
from shared.resend.ledger import Ledger
from shared.resend.letters import Letter
from shared.resend.places import Place
from tests.messages import delivered

PLACE = Place("west", "west", "WEST", "Orders/$DeadLetterQueue")
LETTER = Letter.at(PLACE, delivered(1))


def opened(path: Path) -> Ledger:
    """Return the ledger in *path* as a run has it."""

    async def run() -> Ledger:
        async with Ledger(LedgerFile(path), "orders") as ledger:
            return ledger

    return asyncio.run(run())


def copy(ledger: Ledger, *, new_ids: bool = False) -> Message:
    return Edits(new_ids=new_ids).resent(LETTER, PLACE, ledger)


def key_in(message: Message, ledger: Ledger, place: Place = PLACE) -> str | None:
    return resent_key(Letter(message.encode(), place.origin), place, ledger)


def test_a_copy_is_recognised_by_every_run_with_its_ledger(tmp_path: Path) -> None:
    message = copy(opened(tmp_path / "a"))
    again = opened(tmp_path / "a")
    assert key_in(message, again) == LETTER.key
    assert key_in(message, opened(tmp_path / "b")) is None
    assert key_in(message, again, PLACE._replace(entity="other")) is None
    assert str(again.proof("id")) not in str(message.application_property(RESENT_FROM))


@pytest.mark.parametrize("change", ["number", "cut", "without", "empty", "more", "another type"])
def test_a_stamp_that_no_run_has_written_proves_nothing(tmp_path: Path, change: str) -> None:
    ledger = opened(tmp_path / "a")
    message = copy(ledger)
    stamp = message.application_property(RESENT_FROM)
    assert stamp is not None
    text = str(stamp.payload)
    forged: dict[str, Value] = {
        "number": string(text.replace("/1/", "/2/")),
        "cut": string(text[:-1]),
        "without": string(text.partition("#")[0]),
        "empty": string(""),
        "more": string(f"{text}#"),
        "another type": Value(0xA0, text.encode()),
    }
    message.set_properties({RESENT_FROM: forged[change]})
    assert key_in(message, ledger) is None


def test_a_new_id_is_the_same_in_each_run_and_nobody_else_can_foresee_it(tmp_path: Path) -> None:
    ids = [copy(opened(tmp_path / name), new_ids=True).message_id for name in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]
