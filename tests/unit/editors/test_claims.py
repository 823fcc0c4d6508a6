"""Bodies that are stored and restored, and claims that are refused."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp import sections
from shared.amqp.codec import encode
from shared.amqp.values import NULL, Value, int_, list_, long, string, symbol
from shared.editors.claim_check import ClaimCheck, ClaimCheckStep
from shared.editors.claim_restore import ClaimRestore, ClaimRestoreStep
from shared.editors.state.claims import MEDIA_TYPE, PROPERTY
from shared.errors import ConfigError, MessageRejected, TargetUnavailable
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import BatchEditor, Outcome, Postponed
from shared.stores.sqlite_stores import FileBlobs
from tests import keys, messages
from tests.editing import answers, editor, rejection
from tests.fakes import task_facts
from tests.messages import ENQUEUED, message

ORIGIN = Origin("west", "orders/Subscriptions/all")


def drawing(number: int, body: bytes = b"", **options: Any) -> Message:
    return message(number, body=body, origin=ORIGIN, **options)


def check(path: Path, **options: Any) -> Any:
    asked: dict[str, Any] = {"setting": "CLAIMS", "above": 10, **options}
    return editor("claim-check", {"CLAIMS": f"file:{path}"}, **asked)


def restoring(path: Path, **options: Any) -> Any:
    asked: dict[str, Any] = {"setting": "CLAIMS", **options}
    return editor("claim-restore", {"CLAIMS": f"file:{path}"}, **asked)


def edited(editor: BatchEditor, *messages: Message) -> list[Message]:
    results = answers(editor, *messages)
    assert all(isinstance(result, Sequence) for result in results), results
    return [result[0] for result in results if isinstance(result, Sequence) and isinstance(result[0], Message)]


def names(path: Path) -> list[str]:
    return asyncio.run(FileBlobs(path, "busway-claims").names(""))


def said(message: Message) -> Any:
    return json.loads(message.body or b"")


def altered(claim: Message, changes: Mapping[str, object], named: str | None = None) -> Message:
    copy = claim.copy()
    copy.body = json.dumps({**said(claim), **changes}).encode()
    if named is not None:
        copy.set_properties({PROPERTY: string(named)})
    return copy


def whole(message: Message) -> tuple[object, ...]:
    raw = message.sections
    fields = [field for field in message.property_fields() if field != b"\x40"]
    return raw.body, raw.application_properties, raw.message_annotations, fields, raw.footer, message.arrival


def test_a_large_body_is_replaced_by_a_claim_and_restored(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    large = drawing(7, b"a large body", content_type=symbol("text/plain"), named={"a": int_(1)}, session_id="s")
    (claim,) = edited(check(path), large)
    digest = sha256(b"a large body").hexdigest()
    blob = f"west/orders/Subscriptions/all/2030-03-17/7-{ENQUEUED}-0-{digest[:16]}"
    assert said(claim) == {
        "claim-check": 1,
        "container": "file:claims.db/busway-claims",
        "blob": blob,
        "size": 12,
        "sha256": digest,
        "form": "data",
        "content_type": "text/plain",
    }
    assert claim.content_type == MEDIA_TYPE
    assert dict(claim.application_properties()) == {"a": int_(1), PROPERTY: string(blob)}
    assert (claim.message_id, claim.session_id, claim.arrival) == (large.message_id, "s", large.arrival)
    assert large.body == b"a large body"
    (back,) = edited(restoring(path), claim)
    assert whole(back) == whole(large)


@given(
    body=st.one_of(
        st.binary(max_size=40).map(sections.data),
        st.lists(st.binary(max_size=20), max_size=3).map(lambda parts: b"".join(map(sections.data, parts))),
        st.text(max_size=30).map(lambda text: b"\x00\x53\x77" + encode(string(text))),
        st.lists(st.integers(-5, 500), max_size=9).map(lambda items: b"\x00\x53\x76" + encode(list_(map(long, items)))),
    ),
    content_type=st.sampled_from([None, "application/json", "text/plain; charset=utf-8"]),
    named=st.dictionaries(st.sampled_from(["a", "b", "claim"]), st.text(max_size=5).map(string)),
    above=st.integers(0, 20),
)
def test_claim_restore_undoes_claim_check(
    tmp_path_factory: pytest.TempPathFactory, body: Any, content_type: str | None, named: Any, above: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "identity.db"
    options: dict[str, Value] = {} if content_type is None else {"content_type": symbol(content_type)}
    before = drawing(1, b"", named=named, **options)
    before.sections.body = body
    (claim,) = edited(check(path, above=above), before)
    assert (claim.application_property(PROPERTY) is not None) == (len(_content(before)) > above)
    (back,) = edited(restoring(path), claim)
    assert whole(back) == whole(before)


def _content(message: Message) -> bytes:
    body = message.sections.body
    content = message.body if body else b""
    return content if content is not None and sections.data(content) == body else body


def test_a_redelivered_message_gets_the_same_claim_and_other_messages_get_others(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    first, again, part = (drawing(7, b"a large body") for _ in range(3))
    (claim,) = edited(check(path), first)
    claims = edited(check(path), again, part, drawing(8, b"a large body"), drawing(7, b"another body"))
    assert claims[0].encode() == claim.encode()
    assert len({said(claim)["blob"] for claim in claims}) == 4
    assert len(names(path)) == 4
    unnumbered = [messages.message(None, body=b"a large body", message_id=each, origin=ORIGIN) for each in "ab"]
    assert len({said(each)["blob"] for each in edited(check(path), *unnumbered)}) == 2


def test_small_bodies_and_messages_without_a_claim_are_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    small = drawing(1, b"0123456789")
    assert edited(check(path), small) == [small]
    assert edited(restoring(path), small) == [small]
    nothing = drawing(2, b"no claim", named={PROPERTY: NULL})
    assert edited(restoring(path), nothing) == [nothing]
    assert not path.exists()


def test_claim_check_works_before_and_after_encryption(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    app = keys.settings(key=keys.jwks(keys.made("oct")))
    encrypt, decrypt = (editor(verb, app, key="key") for verb in ("encrypt", "decrypt"))
    large = drawing(1, b"a body that is large", content_type=symbol("text/plain"))
    for first, second in ((check(path), encrypt), (encrypt, check(path))):
        (one,) = edited(first, large.copy())
        (two,) = edited(second, one)
        (three,) = edited(decrypt if second is encrypt else restoring(path), two)
        (four,) = edited(restoring(path) if second is encrypt else decrypt, three)
        assert (four.body, four.content_type) == (large.body, "text/plain")
        assert four.application_property(PROPERTY) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"container": "https://evil.example/claims"}, "ForeignClaim: claims a blob of another container"),
        ({"container": "file:claims.db/other"}, "ForeignClaim"),
        ({"sha256": "0" * 64}, "ClaimAltered"),
        ({"size": 11}, "ClaimAltered: the blob has 12 bytes"),
        ({"size": 13}, "ClaimAltered"),
        ({"size": 10**9}, "BodyTooLarge: claims 1000000000 bytes, expected at most 104857600"),
        ({"size": -1}, "BadClaim"),
        ({"size": "12"}, "BadClaim"),
        ({"claim-check": 2}, "BadClaim"),
        ({"form": "avro"}, "BadClaim"),
        ({"form": "amqp"}, "Malformed"),
        ({"blob": "another"}, "BadClaim: the body names another blob than the property"),
    ],
)
def test_an_invalid_claim_is_rejected(tmp_path: Path, changes: Any, expected: str) -> None:
    path = tmp_path / "claims.db"
    (claim,) = edited(check(path), drawing(1, b"a large body"))
    problem = ": ".join(rejection(restoring(path), altered(claim, changes)))
    assert problem.startswith(expected)
    assert "large" not in problem


@pytest.mark.parametrize("blob", ["../secrets/key", "a/../../b", "./a", "/a", "a//b", "a?b", "", "a/..", "..."])
def test_a_claim_with_a_blob_name_outside_its_folder_is_rejected(tmp_path: Path, blob: str) -> None:
    path = tmp_path / "claims.db"
    (claim,) = edited(check(path), drawing(1, b"a large body"))
    assert ": ".join(rejection(restoring(path), altered(claim, {"blob": blob}, blob))).startswith("BadClaim")


def test_a_missing_blob_and_a_body_that_is_not_a_claim_reject_only_their_own_message(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    lost, good = edited(check(path), drawing(1, b"a lost body"), drawing(2, b"a large body"))
    asyncio.run(FileBlobs(path, "busway-claims").delete(said(lost)["blob"]))
    results = answers(restoring(path), lost, good, drawing(3, b"no JSON", named={PROPERTY: string("x")}))
    assert [isinstance(result, MessageRejected) for result in results] == [True, False, True]
    assert str(results[0]).startswith("ClaimMissing: the blob that it claims is missing")
    assert str(results[2]).startswith("NotJson: ")
    claimed = drawing(4, b"a large body", named={PROPERTY: string("x")})
    assert ": ".join(rejection(check(path), claimed)).startswith("ClaimedAlready")


def test_blobs_are_deleted_after_the_whole_delivery_is_settled_and_only_if_configured(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    claims = edited(check(path), *(drawing(number, b"a large body") for number in (1, 2, 3)))
    keeping, deleting = restoring(path), restoring(path, delete=True)
    for each in (keeping, deleting):
        edited(each, *claims)
        settle(each, claims[:2], [Outcome.SENT, Outcome.SENT])
        assert len(names(path)) == 3
    edited(deleting, *claims)  # the third was not sent: the host delivers all of them again
    settle(keeping, claims, [Outcome.SENT, Outcome.SENT, Outcome.REJECTED])
    assert len(names(path)) == 3
    settle(deleting, claims, [Outcome.SENT, Outcome.SENT, Outcome.REJECTED])
    assert names(path) == [said(claims[2])["blob"]]
    settle(deleting, claims, [Outcome.SENT, Outcome.SENT, Outcome.REJECTED])


def settle(editor: ClaimRestore, messages: Sequence[Message], outcomes: Sequence[Outcome]) -> None:
    settled = [(each.arrival, outcome) for each, outcome in zip(messages, outcomes, strict=True)]
    asyncio.run(editor.settled(settled, timeout_seconds=5))


class Stalling(FileBlobs):
    """Storage that accepts some bodies and is then unavailable."""

    written: list[str]
    takes = 0

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:
        if not self.takes:
            raise TargetUnavailable("blob: away")
        self.takes -= 1
        self.written.append(name)
        await super().write(name, content, content_type)


def test_unavailable_storage_holds_the_delivery_which_then_continues(tmp_path: Path) -> None:
    blobs = Stalling(tmp_path / "claims.db", "claims")
    blobs.written, blobs.takes = [], 2
    editor = ClaimCheck(blobs, 10)
    messages = [drawing(number, b"a large body") for number in (1, 2, 3)]
    with pytest.raises(TargetUnavailable):
        answers(editor, *messages)
    blobs.takes = 9
    claims = edited(editor, *messages)
    assert sorted(blobs.written) == sorted(said(claim)["blob"] for claim in claims)


class Slow(FileBlobs):
    """Storage that never answers."""

    async def read(self, *_: object, **__: object) -> None:
        await asyncio.Event().wait()


def test_storage_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    (claim,) = edited(check(tmp_path / "claims.db"), drawing(1, b"a large body"))
    options = ClaimRestoreStep.model_validate({"claim-restore": {"setting": "S"}}).options
    editor = ClaimRestore(Slow(tmp_path / "claims.db", "busway-claims"), options)
    with pytest.raises(TargetUnavailable, match="did not answer within"):
        asyncio.run(editor.edit_batch([claim], timeout_seconds=0.01))


def test_a_missing_app_setting_of_the_store_stops_the_start() -> None:
    for step, verb in ((ClaimCheckStep, "claim-check"), (ClaimRestoreStep, "claim-restore")):
        with pytest.raises(ConfigError, match=f"task copy: {verb}: app setting S: the app setting is missing"):
            step.model_validate({verb: {"setting": "S"}}).editor(task_facts())


def test_blob_of_a_message_with_a_time_of_no_calendar_has_a_name(tmp_path: Path) -> None:
    (claim,) = edited(check(tmp_path / "claims.db"), message(1, body=b"x" * 100, enqueued=2**62))
    assert "/undated/" in said(claim)["blob"]


def test_bodies_that_become_too_large_together_wait_before_they_are_downloaded(tmp_path: Path) -> None:
    claims = edited(check(tmp_path / "claims.db"), *(drawing(number, bytes(30 * 2**20)) for number in (1, 2, 3)))
    options = ClaimRestoreStep.model_validate({"claim-restore": {"setting": "S"}}).options
    editor = ClaimRestore(FileBlobs(tmp_path / "claims.db", "busway-claims"), options)
    results = asyncio.run(editor.edit_batch([*claims, message(4)], timeout_seconds=5))
    assert [isinstance(result, Postponed) for result in results] == [False, False, True, True]
