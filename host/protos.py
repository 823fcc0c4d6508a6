"""
Protocol objects for azure-functions-runtime in place of generated protobuf classes.

1. They have the fields that the library reads and writes. Between host and worker they are pickled.
2. `TypedData` is a union: one field is set, and `WhichOneof("data")` names it.
3. The library probes for `TypedData` on a TypedData and expects an AttributeError, so fields exist only when declared.

Source: FunctionRpc.proto of Azure/azure-functions-language-worker-protobuf; which names are needed was read off
azure_functions_runtime 1.3.0 (handle_event, loader, bindings/datumdef, bindings/nullable_converters).
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple


class TypedData:
    """One value between host and worker; keyword and type agree (bytes, string, json, http, …)."""

    __slots__ = ("data", "kind")

    def __init__(self, **field: Any) -> None:
        """Set one field, or none."""
        self.kind: str | None = next(iter(field), None)
        self.data: Any = None if self.kind is None else field[self.kind]

    def WhichOneof(self, _group: str) -> str | None:  # noqa: N802 - protobuf's name
        """Return the name of the field that is set."""
        return self.kind

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to restore it: `__getattr__` does not work before the fields exist."""
        return _typed_data, (self.kind, self.data)

    def __getattr__(self, name: str) -> Any:
        """Return the field that is set under its own name."""
        if name == self.kind:
            return self.data
        raise AttributeError(name)


def _typed_data(kind: str | None, data: Any) -> TypedData:
    return TypedData() if kind is None else TypedData(**{kind: data})


class ModelBindingData(NamedTuple):
    """A message for an SDK type; `source` and `version` identify the format of `content`."""

    version: str
    source: str
    content_type: str
    content: bytes


class CollectionModelBindingData(NamedTuple):
    """The messages of a batch for an SDK type."""

    model_binding_data: Sequence[ModelBindingData]


class ParameterBinding:
    """A value for the function's parameter *name*, or from its output binding of that name."""

    __slots__ = ("data", "name")

    def __init__(self, name: str, data: TypedData | None) -> None:
        """Bind *data* to *name*."""
        self.name = name
        self.data = data

    def WhichOneof(self, _group: str) -> str:  # noqa: N802 - protobuf's name
        """Return the kind of data: never shared memory."""
        return "data"


class _Record(SimpleNamespace):
    """A message of the protocol without behaviour."""


class StatusResult(_Record):
    """The status of a request, with the exception if it failed."""

    Failure = 0
    Success = 1


class BindingInfo(_Record):
    """A binding of an indexed function."""

    inout = 2
    out = 1
    undefined = 0


class RpcHttpCookie(_Record):
    """A cookie of an HTTP response."""

    class SameSite:
        """The SameSite attribute; `None` means that it is not sent."""

        Lax = 1
        Strict = 2
        ExplicitNone = 3


setattr(RpcHttpCookie.SameSite, "None", 0)  # a keyword, which an assignment cannot use as a name


class InvocationResponse(_Record):
    """The result or failure of an invocation."""

    return_value: TypedData | None = None
    output_data: Sequence[ParameterBinding] = ()


Timestamp = NullableString = NullableBool = NullableDouble = NullableTimestamp = _Record
RpcException = RpcHttp = RpcRetryOptions = RpcFunctionMetadata = WorkerMetadata = _Record
WorkerInitResponse = FunctionMetadataResponse = FunctionLoadResponse = _Record
