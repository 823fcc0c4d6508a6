"""
Bodies in a form that some clients write around or instead of what their users wrote: which form it is, for errors.

Source: Confluent, "Wire format" of the schema registry; .NET, DataContractSerializer with the binary XML writer, which
`BrokeredMessage(object)` of WindowsAzure.ServiceBus uses.
"""

_NET = (b"http://schemas.microsoft.com/2003/10/Serialization/", b"http://schemas.datacontract.org/")
_SEARCHED = 512
_HEAD = 5


def form_of(content: bytes) -> str:
    """Return the end of a sentence about a body that cannot be read, empty if its form is not known."""
    if content[:1] == b"@" and any(each in content[:_SEARCHED] for each in _NET):
        return (
            "; it begins as the DataContractSerializer of .NET writes it: let the sender pass a stream or bytes to"
            " BrokeredMessage"
        )
    if content[:1] == b"\x00" and len(content) > _HEAD:
        return (
            "; it begins with 00 and four bytes, as serializers of Confluent write the id of a schema: let an editor"
            " python remove these five bytes"
        )
    return ""
