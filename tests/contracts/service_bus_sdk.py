"""The azure-servicebus SDK's own encoder, which turns a batch into the bytes of a transfer."""

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import BatchMessage


def encoded_batch(batch: ServiceBusMessageBatch) -> bytes:
    content = bytearray()
    encode_payload(content, BatchMessage(*batch._message))
    return bytes(content)
