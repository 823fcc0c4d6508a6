"""
The cost of each editor that encrypts, signs or chains a message with an order of 1 KB, against the library's call.

The pipeline edits batches of 50 messages. The bare calls get the same bodies one by one, write what they sign as JSON
and compute the digests that an attestation needs. Both alternate, so that other load slows down both. The store of
chains is in memory: a storage account costs one request per batch. Attestations and links have their bar with Ed25519,
because an HMAC costs less than collecting the claims.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from joserfc import jwe, jws
from joserfc.jwk import Key, OctKey, OKPKey

from benchmarks.measurement import Measurement, report
from shared.amqp.sections import Sections, data
from shared.amqp.values import long, string
from shared.azure.secrets import SettingSecrets, setting_of
from shared.clock import SystemClock
from shared.editors.attest import AttestStep
from shared.editors.chain import ChainStep
from shared.editors.decrypt import DecryptStep
from shared.editors.encrypt import EncryptStep
from shared.editors.options import Step, TaskFacts
from shared.editors.re_encrypt import ReEncryptStep
from shared.editors.sign import SignStep
from shared.editors.verify import VerifyStep
from shared.editors.verify_chain import VerifyChainStep
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import BatchEditor
from shared.stores.documents import Document

# The clock of a process with several threads may be some milliseconds off: a round has many batches.
ROUNDS, BATCHES, BATCH = 3, 20, 50
MOST = 1.5
ORIGIN = Origin("west", "orders")
LINES = [
    {"article": f"A-{100 + number}", "name": "Hexagon bolt M8 x 40, zinc plated", "count": number, "price": 10.5}
    for number in range(1, 10)
]
CARD = {"number": "4000 0566 5566 5556", "holder": "Blue Yonder"}
ORDER = json.dumps(
    {"id": "4711", "customer": {"id": "c-1", "name": "Blue Yonder"}, "card": CARD, "lines": LINES}
).encode()


class Case(NamedTuple):
    """An editor, what it is given, and the call of the library that it wraps."""

    name: str
    editor: BatchEditor
    messages: Sequence[Message]
    bare: Callable[[Message], object]
    most: float | None = MOST
    """So many times the bare call's cost are the bar; None where the figure only explains."""


def facts(key: Key) -> TaskFacts:
    """Return what an editor may know of a task with one key."""
    settings = {setting_of("k"): json.dumps({"keys": [key.as_dict(private=True)]}), "STATE": "file:benchmark.db"}
    return TaskFacts("copy", ORIGIN, settings, SettingSecrets(settings), SystemClock())


def editor(step: type[Step], key: Key, **options: object) -> BatchEditor:
    """Return the editor of a step; one that keeps documents keeps them in memory."""
    made = step.model_validate(
        {step.verb(): {"key": "k", **options}} if options.get("from") is None else {step.verb(): options}
    )
    found = cast("BatchEditor", made.editor(facts(key)))
    if hasattr(found, "_sequences"):
        found._sequences._documents = InMemory()  # noqa: SLF001 - so that only the editor is measured
    return found


class InMemory:
    """A store that costs nothing."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: dict[str, Document] = {}

    async def read(self, name: str) -> Document | None:
        """Return what is kept."""
        return self._kept.get(name)

    async def write(self, name: str, content: bytes, version: str | None) -> str:
        """Keep it."""
        self._kept[name] = Document(content, str(int(version or 0) + 1))
        return self._kept[name].version


def orders() -> list[Message]:
    """Return a batch of a sender of orders."""
    return [order(number) for number in range(1, BATCH + 1)]


def order(number: int) -> Message:
    """Return a message with an order."""
    message = Message(Sections(body=data(ORDER)), Arrival(ORIGIN, number, None, 1_900_000_000_123 + number))
    message.message_id = string(f"order-{number}")
    message.content_type = "application/json"
    message.session_id = "c-1"
    message.set_properties({"country": string("DE"), "priority": long(7), "tenant": string("blue")})
    return message


def edited(each: BatchEditor, messages: Sequence[Message]) -> list[Message]:
    """Return what an editor makes of messages, which all pass."""
    results = asyncio.run(each.edit_batch(messages, timeout_seconds=60))
    return [cast("Sequence[Message]", result)[0] for result in results]


def text_of(message: Message, name: str) -> str:
    """Return a property that is a text."""
    value = message.application_property(name)
    return str(value.payload) if value is not None else ""


SECRET: Key = OctKey.generate_key(256, cast("Any", {"kid": "k1"}))
SIGNER: Key = OKPKey.generate_key("Ed25519", cast("Any", {"kid": "k1"}))
JWE = jwe.JWERegistry(strict_check_header=False)
JWS = jws.JWSRegistry(algorithms=["HS256", "Ed25519"])
WRAPPED = {"alg": "A256KW", "enc": "A256GCM", "kid": "k1", "cty": "application/json"}


def sealed(content: bytes) -> str:
    """Return the bare call's encryption."""
    return jwe.encrypt_compact(dict(WRAPPED), content, SECRET, registry=JWE)


def cases() -> list[Case]:
    """Return a case for each editor."""
    paths = {"fields": ["$.card.number", "$.card.holder"]}
    encrypted = edited(editor(EncryptStep, SECRET), orders())
    with_fields = edited(editor(EncryptStep, SECRET, **paths), orders())
    again = {"from": {"key": "k"}, "to": {"key": "k"}}
    found = [
        Case("encrypt", editor(EncryptStep, SECRET), orders(), lambda _: sealed(ORDER)),
        Case("encrypt, two fields", editor(EncryptStep, SECRET, **paths), orders(), fields_sealed),
        Case("decrypt", editor(DecryptStep, SECRET), encrypted, opened),
        Case("decrypt, two fields", editor(DecryptStep, SECRET, **paths), with_fields, fields_opened),
        Case("re-encrypt", editor(ReEncryptStep, SECRET, **again), encrypted, lambda each: sealed(opened(each))),
    ]
    for algorithm, key in (("HS256", SECRET), ("Ed25519", SIGNER)):
        found += signing(algorithm, key)
    return found


def signing(algorithm: str, key: Key) -> list[Case]:
    """Return the cases of the editors that sign, and of those that verify."""
    header = {"alg": algorithm, "kid": "k1"}
    most = None if key is SECRET else MOST
    detached = {**header, "b64": False, "crit": ["b64"]}
    signed = edited(editor(SignStep, key), orders())
    options: dict[str, object] = {"store": {"setting": "STATE"}}
    linked = edited(editor(ChainStep, key, sequence="session", **options), orders())
    attested = text_of(edited(editor(AttestStep, key), orders())[0], "repl-attestation").encode()
    claims = json.loads(jws.deserialize_compact(attested, key, registry=JWS).payload)
    said = json.loads(jws.deserialize_compact(text_of(linked[0], "repl-chain"), key, registry=JWS).payload)

    def bare_sign(_: Message) -> object:
        return jws.serialize_compact(dict(detached), ORDER, key, registry=JWS)

    def bare_verify(message: Message) -> object:
        return jws.deserialize_compact(text_of(message, "repl-signature"), key, registry=JWS, payload=ORDER)

    def bare_attest(message: Message) -> object:
        spelling = json.dumps([[name, "string", "a value"] for name in claims["properties"]])
        digests = hashlib.sha256(message.body or b"").digest(), hashlib.sha256(spelling.encode()).digest()
        return digests, jws.serialize_compact(dict(header), json.dumps(claims), key, registry=JWS)

    def bare_unlink(message: Message) -> object:
        return json.loads(jws.deserialize_compact(text_of(message, "repl-chain"), key, registry=JWS).payload)

    return [
        Case(f"sign, {algorithm}", editor(SignStep, key), orders(), bare_sign),
        Case(f"verify, {algorithm}", editor(VerifyStep, key), signed, bare_verify),
        Case(f"attest, {algorithm}", editor(AttestStep, key), orders(), bare_attest, most),
        Case(
            f"chain, {algorithm}",
            editor(ChainStep, key, sequence="session", **options),
            orders(),
            lambda _: jws.serialize_compact(dict(header), json.dumps(said), key, registry=JWS),
            most,
        ),
        Case(f"verify-chain, {algorithm}", editor(VerifyChainStep, key, **options), linked, bare_unlink, most),
    ]


def opened(message: Message) -> bytes:
    """Return what the bare call decrypts."""
    return jwe.decrypt_compact(message.body or b"", SECRET, registry=JWE).plaintext or b""


def fields_sealed(_: Message) -> bytes:
    """Return an order of which the bare call has encrypted two fields."""
    document = json.loads(ORDER)
    document["card"] = {name: sealed(json.dumps(value).encode()) for name, value in document["card"].items()}
    return json.dumps(document).encode()


def fields_opened(message: Message) -> bytes:
    """Return an order of which the bare call has decrypted two fields."""
    document = json.loads(message.body or b"")
    for name, value in document["card"].items():
        document["card"][name] = json.loads(jwe.decrypt_compact(value, SECRET, registry=JWE).plaintext or b"")
    return json.dumps(document).encode()


def main() -> None:
    """Measure and report every editor's cost and how many times the bare call's that is."""
    measurements = []
    for case in cases():
        cost, bare = asyncio.run(costs(case))
        measurements += [
            Measurement(f"editor {case.name}, an order of 1 KB", cost, "µs"),
            Measurement(f"editor {case.name} to the bare library call", cost / bare, "times", case.most),
        ]
    report(measurements)


async def costs(case: Case) -> tuple[float, float]:
    """Return the processor time of the editor and of the bare call in microseconds, the best of some rounds."""
    cost = bare = float("inf")
    for _ in range(ROUNDS):
        batches = [[message.copy() for message in case.messages] for _ in range(BATCHES)]
        started = time.process_time_ns()
        for batch in batches:
            await case.editor.edit_batch(batch, timeout_seconds=60)
        cost = min(cost, (time.process_time_ns() - started) / BATCHES / BATCH / 1000)
        started = time.process_time_ns()
        for batch in batches:
            for message in batch:
                case.bare(message)
        bare = min(bare, (time.process_time_ns() - started) / BATCHES / BATCH / 1000)
    return cost, bare


if __name__ == "__main__":
    main()
