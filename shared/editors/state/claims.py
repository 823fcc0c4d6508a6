"""
A claim: what stands in the place of a body that was put into blob storage (Microsoft's claim-check pattern).

The body of the message is then JSON that says where the body is and what it was, and the application property
`claim-check` is the blob's name. The blob holds the body's bytes as they are, for any reader; of a body that is no
single data section it holds the AMQP sections, and the claim says `"form": "amqp"`.
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

# The names that claim-check gives. A step of dots would lead a client out of the container.
_BLOB_NAME = re.compile(r"(?!.*(?:^|/)\.+(?:/|$))[A-Za-z0-9%._~-]+(?:/[A-Za-z0-9%._~-]+)*")
_SHORT, _FORMAT, _SHORT_FORMAT = 255, 3, 0xA0
_dumped = json.JSONEncoder(ensure_ascii=False).encode


class Claim(NamedTuple):
    """Where a body is, and what it was."""

    container: str
    """Address of the container."""
    blob: str
    size: int
    sha256: str
    form: str
    """`data` where the blob holds the bytes of a data section, `amqp` where it holds the sections."""
    content_type: str | None


def claimed(message: Message) -> tuple[bytes, str]:
    """Return the bytes to keep of a message, and their form."""
    body = message.sections.body
    content = sections.only_data(body)
    # Put back, a short one is encoded in its short form.
    if content is not None and (len(content) <= _SHORT) == (body[_FORMAT] == _SHORT_FORMAT):
        return content, "data"
    return body, "amqp"


def set_claim(message: Message, claim: Claim) -> None:
    """Put a claim in the place of the message's body."""
    message.body = _dumped({"claim-check": 1, **claim._asdict()}).encode()
    message.content_type = MEDIA_TYPE
    message.set_properties({PROPERTY: string(claim.blob)})


def claim_of(message: Message) -> Claim | None:
    """Return the claim that stands in a message, None where there is none; raises MessageRejected."""
    named = message.application_property(PROPERTY)
    if named is None:
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
    raise MessageRejected("BadClaim", f"the body is no claim, expected one with the property {PROPERTY}")


def restore(message: Message, claim: Claim, content: bytes) -> None:
    """Put the body back into its place; raises MessageRejected where it is not what the claim says."""
    if len(content) != claim.size or sha256(content).hexdigest() != claim.sha256:
        raise MessageRejected("ClaimAltered", "the blob is not what was stored: size or SHA-256 differs")
    if claim.form == "data":
        message.body = content
    else:
        sections.body_parts(content)
        message.sections.body = content
    message.content_type = claim.content_type
    message.set_properties({PROPERTY: None})
