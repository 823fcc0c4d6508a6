"""
Objects that the worker hands over are read by attribute only.

The worker has its own copies of grpc and protobuf, the app has others. A function of the app's google.protobuf that is
called with an object of the worker's ends the process with a segmentation fault (measured with worker 4.40.2).
"""

import ast

from tests.architecture.imports import ROOT, modules, within

# The packages whose objects come from the worker, and the app's modules that get them.
WORKER = ("azure.functions", "azurefunctions")
PROTOBUF = ("google", "grpc")
# The methods of a protobuf message.
METHODS = frozenset(
    (
        *("ByteSize", "Clear", "ClearField", "CopyFrom", "DESCRIPTOR", "FromString", "HasField", "IsInitialized"),
        *("ListFields", "MergeFrom", "MergeFromString", "ParseFromString", "SerializePartialToString"),
        *("SerializeToString", "SetInParent", "UnknownFields", "WhichOneof"),
    )
)


def modules_with_worker_objects() -> dict[str, set[str]]:
    return {
        module: names
        for module, names in modules("function_app", "functions", "shared").items()
        if any(within(name, WORKER) for name in names)
    }


def used_attributes(source: str) -> set[str]:
    return {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}


def test_modules_with_objects_of_the_worker_do_not_import_protobuf() -> None:
    found = modules_with_worker_objects()
    assert {"functions.raw_message"} <= found.keys()
    assert {module for module, names in found.items() if any(within(name, PROTOBUF) for name in names)} == set()


def test_modules_with_objects_of_the_worker_call_no_protobuf_method() -> None:
    for module in modules_with_worker_objects():
        source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        assert used_attributes(source) & METHODS == set(), module


def test_a_protobuf_method_is_found() -> None:
    assert used_attributes("content = data.value.SerializeToString()") & METHODS
