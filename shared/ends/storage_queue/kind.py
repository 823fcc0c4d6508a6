"""The record of the queues of a storage account."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from shared.ends.kind import Fit, Holds, Kind, OutputPlace, SourceOptions, TaskFault, Texts
from shared.ends.storage_queue.clients import POISON_SUFFIX, SETTING_FORM, queue_service
from shared.message.text_messages import MOST_QUEUE_BYTES, decode_base64
from shared.protocols import Output

if TYPE_CHECKING:
    from shared.ends.storage_queue.site import StorageQueueSite

# Azure Storage, "Naming queues and metadata"; with room for the end of the name of the poison queue.
_NAME = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_LONGEST = 63


def _output(place: OutputPlace) -> Output:
    from shared.ends.storage_queue.output import StorageQueueOutput

    return StorageQueueOutput(place.site, partial(queue_service, place.setting, place.settings))


def _site(name: str, setting: str, settings: Mapping[str, str], _most_peeked: int | None) -> "StorageQueueSite":
    from shared.ends.storage_queue.site import StorageQueueSite

    return StorageQueueSite(name, queue_service(setting, settings))


def _name_fault(name: str, is_source: bool) -> str | None:
    longest = _LONGEST - len(POISON_SUFFIX) if is_source else _LONGEST
    if _NAME.fullmatch(name) and len(name) <= longest:
        return None
    return f"3 to {longest} lower-case letters, digits and single hyphens, none at an end"


def _restore(source: SourceOptions) -> Fit | None:
    return decode_base64 if source.encoding == "base64" else None


def _faults(source: SourceOptions, needs_order: bool) -> Iterator[TaskFault]:
    if source.sessions or source.dead_letter:
        text = "has sessions or dead_letter, which a storage queue does not have"
        yield TaskFault("source", text, f"its poison queue is a queue of its own, NAME{POISON_SUFFIX}")
    if source.form == "envelope":
        text = "is envelope, expected none: envelopes of a storage queue are always opened"
        yield TaskFault("source.from", text)
    elif needs_order:
        text = "has editors that need an order, and a storage queue keeps none"
        yield TaskFault("editors", text, "take from a queue or subscription of Service Bus")


KIND = Kind(
    name="storage-queue",
    rank=5,
    noun="a storage queue",
    holds=Holds.TEXTS,
    setting=SETTING_FORM,
    output=_output,
    sources=frozenset(("queue",)),
    targets=frozenset(("queue",)),
    restore=_restore,
    texts=Texts(
        MOST_QUEUE_BYTES,
        "the host delivers each message of a storage queue by itself",
        _faults,
        is_xml=True,
        has_encoding=True,
        has_poison_queue=True,
    ),
    name_fault=_name_fault,
    system="azure_storage_queues",
    open_site=_site,
)
