"""The attest editor: a signed statement of where and when a message was received."""

import hashlib
import json
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from shared.editors.content.body import body_or_nothing
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import attach, canonical_form_of_all, encoded, message_id
from shared.editors.protection.key_names import KeyId, KeyName, keyed
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.metadata import SEPARATOR, iso_time
from shared.protocols import BatchEditor

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing

ATTESTATION = "repl-attestation"


class AttestOptions(Strict):
    """Which key signs the statement."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set, of which the last one is used."""
    kid: KeyId | None = None
    """Id of the key to use, if it is not the last of the set."""


class AttestStep(Step):
    """
    Adds a signed statement of where and when a message was received, and of its content at that time.

    The statement is a JWS (RFC 7515) in the property repl-attestation: one per hop, separated by `;`. Its claims are
    site, entity, partition, task, enqueued_time and received (ISO 8601), sequence_number, offset, message_id, body (the
    SHA-256 of the body), properties (their names) and properties_digest (the SHA-256 of their canonical form).
    """

    keeps_properties: ClassVar[bool] = True
    options: AttestOptions = Field(alias="attest")

    def may_set(self) -> frozenset[str]:
        """Return the one application property that it sets or removes."""
        return frozenset((ATTESTATION.lower(),))

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor with these options."""
        return keyed(task, "attest", self.options.key, Attest(self.options, task).edit)


class Attest:
    """Signs what is known about the arrival of a message."""

    def __init__(self, options: AttestOptions, task: TaskFacts) -> None:
        """Make statements about messages that *task* receives."""
        from shared.editors.protection.jws import signing_keys  # noqa: PLC0415 - only tasks with keys load the library

        self._key = signing_keys(options.kid)
        self._task = task

    def edit(self, message: Message, ring: "KeyRing") -> Message:
        """Return *message* with its attestation after those of earlier hops; raises MessageRejected."""
        earlier = message.application_property(ATTESTATION)
        statement = self._key.of(ring).statement(_dumped(self._claims(message)).encode())
        if earlier is not None:
            if not isinstance(earlier.payload, str):
                raise MessageRejected("NotAttested", f"property {ATTESTATION} is a {earlier.kind}, expected a string")
            statement = earlier.payload + SEPARATOR + statement
        attach(message, ATTESTATION, statement)
        return message

    def _claims(self, message: Message) -> dict[str, object]:
        arrival = message.arrival
        names, canonical = canonical_form_of_all(message)
        origin = arrival.origin
        claims: dict[str, object] = {
            "site": origin.site,
            "entity": origin.entity,
            "partition": origin.partition,
            "task": self._task.name,
            "enqueued_time": None if arrival.enqueued_time is None else iso_time(arrival.enqueued_time),
            "received": iso_time(round(self._task.clock.now().timestamp() * 1000)),
            "sequence_number": arrival.sequence_number,
            "offset": arrival.offset,
            "message_id": message_id(message),
            "body": encoded(hashlib.sha256(body_or_nothing(message)).digest()),
            "properties": names,
            "properties_digest": encoded(hashlib.sha256(canonical).digest()),
        }
        return {name: value for name, value in claims.items() if value is not None}


_dumped = json.JSONEncoder(separators=(",", ":")).encode
