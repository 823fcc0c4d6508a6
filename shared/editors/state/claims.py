"""
Claims: small bodies that replace those in blob storage (Microsoft's claim-check pattern).

A claim is JSON with the place and a description of the body; the application property `claim-check` has the name of the
blob. The blob has the bytes of the body, for any reader. For a body that is not a single data section it has the AMQP
sections, and the claim has `"form": "amqp"`.
"""

import json
import re
from hashlib import sha256
from typing import NamedTuple

from shared.amqp import sections
from shared.amqp.values import string
from shared.codecs.json import read
from shared.editors.content.body import content_of
from shared.errors import MessageRejected
from shared.message.message import Message

PROPERTY = "claim-check"
MEDIA_TYPE = "application/vnd.busway.claim-check+json"

# Names that claim-check uses. A step of dots would lead a client out of the container.
_BLOB_NAME = re.compile(r"(?!.*(?:^|/)\.+(?:/|$))[A-Za-z0-9%._~-]+(?:/[A-Za-z0-9%._~-]+)*")
_SHORT, _FORMAT, _SHORT_FORMAT = 255, 3, 0xA0
_dumped = json.JSONEncoder(ensure_ascii=False).encode


class Claim(NamedTuple):
    """The place and the description of a stored body."""

    container: str
    """Address of the container."""
    blob: str
    size: int
    sha256: str
    form: str
    """`data` if the blob has the bytes of a data section, `amqp` if it has the sections."""
    content_type: str | None


def body_to_store(message: Message) -> tuple[bytes, str]:
    """Return the bytes to store for a message, and their form."""
    body = message.sections.body
    content = sections.only_data(body)
    # A restored short section has its short encoding, so only that is stored as data.
    if content is not None and (len(content) <= _SHORT) == (body[_FORMAT] == _SHORT_FORMAT):
        return content, "data"
    return body, "amqp"


def set_claim(message: Message, claim: Claim) -> None:
    """Replace the body of a message by a claim."""
    message.body = _dumped({"claim-check": 1, **claim._asdict()}).encode()
    message.content_type = MEDIA_TYPE
    message.set_properties({PROPERTY: string(claim.blob)})


def claim_of(message: Message) -> Claim | None:
    """Return the claim in a message, None without one; raises MessageRejected."""
    named = message.application_property(PROPERTY)
    if named is None or named.payload is None:
        return None
    said = read(content_of(message))
    match said:
        case {
            "claim-check": 1,
            "container": str(container),
            "blob": str(blob),
            "size": int(size),
            "sha256": str(digest),
            "form": "data" | "amqp" as form,
            "content_type": str() | None as content_type,
        } if _BLOB_NAME.fullmatch(blob) and size >= 0:
            if blob != named.payload:
                raise MessageRejected("BadClaim", f"the body names another blob than the property {PROPERTY}")
            return Claim(container, blob, size, digest, form, content_type)
    raise MessageRejected("BadClaim", f"the body is not a claim, expected one with the property {PROPERTY}")


def restore(message: Message, claim: Claim, content: bytes) -> None:
    """Replace the claim by the body; raises MessageRejected if that does not match the claim."""
    if len(content) != claim.size or sha256(content).hexdigest() != claim.sha256:
        raise MessageRejected("ClaimAltered", "the blob is not what was stored: size or SHA-256 differs")
    if claim.form == "data":
        message.body = content
    else:
        sections.body_parts(content)
        message.sections.body = content
    message.content_type = claim.content_type
    message.set_properties({PROPERTY: None})
