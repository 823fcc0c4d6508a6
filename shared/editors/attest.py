"""The attest editor: a signed statement of where and when a message was received."""

import hashlib
import json
from typing import ClassVar

from pydantic import Field

from shared.editors.content.body import body_or_nothing
from shared.editors.options import Strict, TaskFacts
from shared.editors.protection.bound_properties import attach, canonical_form_of_all, encoded, message_id
from shared.editors.protection.jws import SigningKey
from shared.editors.protection.key_names import KeyId, KeyName
from shared.editors.protection.keys import KeyedStep, KeyRing
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.metadata import SEPARATOR, iso_time

ATTESTATION = "repl-attestation"


class AttestOptions(Strict):
    """Which key signs the statement."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set, of which the last one is used."""
    kid: KeyId | None = None
    """Id of the key to use, if it is not the last of the set."""


class AttestStep(KeyedStep):
    """
    Adds a signed statement of where and when a message was received, and of its content at that time.

    The statement is a JWS (RFC 7515) in the property repl-attestation: one per hop, separated by `;`. Its claims are
    site, entity, partition, task, enqueued_time and received (ISO 8601), sequence_number, offset, message_id, body (the
    SHA-256 of the body), properties (their names) and properties_digest (the SHA-256 of their canonical form).
    """

    sets: ClassVar[frozenset[str]] = frozenset((ATTESTATION,))
    options: AttestOptions = Field(alias="attest")

    def edit(self, message: Message, ring: KeyRing, task: TaskFacts) -> Message:
        """Return *message* with its attestation after those of earlier hops."""
        earlier = message.application_property(ATTESTATION)
        statement = ring.once(SigningKey, self.options.kid).statement(_dumped(_claims(message, task)).encode())
        if earlier is not None:
            if not isinstance(earlier.payload, str):
                raise MessageRejected("NotAttested", f"property {ATTESTATION} is a {earlier.kind}, expected a string")
            statement = earlier.payload + SEPARATOR + statement
        attach(message, ATTESTATION, statement)
        return message


def _claims(message: Message, task: TaskFacts) -> dict[str, object]:
    arrival = message.arrival
    names, canonical = canonical_form_of_all(message)
    origin = arrival.origin
    claims: dict[str, object] = {
        "site": origin.site,
        "entity": origin.entity,
        "partition": origin.partition,
        "task": task.name,
        "enqueued_time": None if arrival.enqueued_time is None else iso_time(arrival.enqueued_time),
        "received": iso_time(round(task.clock.now().timestamp() * 1000)),
        "sequence_number": arrival.sequence_number,
        "offset": arrival.offset,
        "message_id": message_id(message),
        "body": encoded(hashlib.sha256(body_or_nothing(message)).digest()),
        "properties": names,
        "properties_digest": encoded(hashlib.sha256(canonical).digest()),
    }
    return {name: value for name, value in claims.items() if value is not None}


_dumped = json.JSONEncoder(separators=(",", ":")).encode
