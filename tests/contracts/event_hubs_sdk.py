"""The azure-eventhub SDK's own encoder, which turns a batch into the bytes of a transfer."""

from azure.eventhub import EventDataBatch
from azure.eventhub._pyamqp._encode import encode_payload


def encoded_batch(batch: EventDataBatch) -> bytes:
    content = bytearray()
    encode_payload(content, batch._message)
    return bytes(content)
