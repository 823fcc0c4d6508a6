"""
A plugin for pytest: leads the clients of Microsoft's live tests to a local broker.

The clients are unmodified. They connect to localhost at the ports of Azure, 5671 and 443, which name resolution maps to
those of the broker in BUSWAY_AMQP and BUSWAY_ADMIN; certifi returns the broker's authority. The clients of the Resource
Manager, which create entities, are replaced by ones that use the broker's administration.
"""

import json
import os
import socket
import sys
import types
import urllib.request
from datetime import timedelta
from typing import Any

import azure.eventhub.extensions
import certifi
import pytest

_PORTS = {5671: int(os.environ["BUSWAY_AMQP"]), 443: int(os.environ["BUSWAY_ADMIN"])}
_KEY_NAME, _KEY = os.environ["BUSWAY_KEY_NAME"], os.environ["BUSWAY_KEY"]
_AUTHORITY = os.environ["SSL_CERT_FILE"]
_NAMES_OF_A_NAMESPACE = 3
# These tests wait with open credit, after their last message, for as long as the lock on their session lasts: it ends
# first. Azure did not end such a lock until 2026; the broker does, as Azure does now. So it is longer than their wait.
_WAITS_FOR_A_SESSION_LOCK = "session_by_queue_client_conn_str_receive_handler_receiveanddelete"
_LONGER_SESSION_LOCK = timedelta(seconds=30)
_CONNECTION_STRING = f"Endpoint=sb://localhost/;SharedAccessKeyName={_KEY_NAME};SharedAccessKey={_KEY}"

_getaddrinfo = socket.getaddrinfo


def _resolve(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    if name == "localhost":
        return _getaddrinfo("127.0.0.1", _PORTS.get(port, port), *arguments, **options)
    if name == "127.0.0.1":
        return _getaddrinfo(host, port, *arguments, **options)
    raise socket.gaierror(socket.EAI_NONAME, f"{name}: only localhost is known here")


socket.getaddrinfo = _resolve
# The package for asyncio is in a folder beside those of the project, which this package does not look into by itself.
azure.eventhub.extensions.__path__.append(f"{os.environ['BUSWAY_PACKAGES']}/azure/eventhub/extensions")
certifi.where = lambda: _AUTHORITY


def pytest_configure(config: pytest.Config) -> None:
    """Accept the mark of some tests of azure-eventhub: the project's own options refuse unknown ones."""
    config.addinivalue_line("markers", "livetest: needs a service")


class _Named(types.SimpleNamespace):
    """A resource or a model of one: whatever fields it is given."""


class _Entities:
    def __init__(self, create: Any, delete: Any) -> None:
        self._create, self._delete = create, delete
        self._rules: dict[tuple[str, ...], str] = {}

    def create_or_update(self, *names_and_settings: Any) -> Any:
        *names, settings = names_and_settings[2:]
        fields = {} if isinstance(settings, dict) else vars(settings)
        fields = {name: value for name, value in fields.items() if value is not None}
        if _WAITS_FOR_A_SESSION_LOCK in os.environ["PYTEST_CURRENT_TEST"]:
            fields["lock_duration"] = _LONGER_SESSION_LOCK
        self._create(*names, **fields)
        return _Named(name=names[-1], id=names[-1])

    def delete(self, *names: str) -> None:
        self._delete(*names[2:])

    def create_or_update_authorization_rule(self, *names_and_rule: Any) -> None:
        *names, rule = names_and_rule[2:]
        # The broker has a key of the namespace for each right, and one for all of them.
        self._rules[tuple(names)] = rule.rights[0] if len(rule.rights) == 1 else ""

    def delete_authorization_rule(self, *names: Any) -> None:
        self._rules.pop(names[2:])

    def list_keys(self, *names: Any) -> Any:
        key_name = f"{_KEY_NAME}{self._rules.get(names[2:], '')}"
        text = f"Endpoint=sb://localhost/;SharedAccessKeyName={key_name};SharedAccessKey={_KEY}"
        if len(names) > _NAMES_OF_A_NAMESPACE:
            text += f";EntityPath={names[2]}"
        return _Named(primary_connection_string=text, key_name=key_name, primary_key=_KEY)


class _Namespaces(_Entities):
    def __init__(self) -> None:
        super().__init__(None, None)

    def begin_create_or_update(self, *names: Any) -> Any:
        return _Named(result=lambda: _Named(name="localhost", id="localhost"))

    def delete(self, *names: str) -> None:
        pass

    begin_delete = delete


class ServiceBusManagementClient:
    """Creates entities of a Service Bus namespace through the SDK's own administration client."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        from azure.servicebus.management import ServiceBusAdministrationClient

        client = ServiceBusAdministrationClient.from_connection_string(_CONNECTION_STRING)
        self.namespaces = _Namespaces()
        self.queues = _Entities(client.create_queue, client.delete_queue)
        self.topics = _Entities(client.create_topic, client.delete_topic)
        self.subscriptions = _Entities(client.create_subscription, client.delete_subscription)


class _Hubs:
    """Event hubs, through the JSON API of the broker."""

    def __init__(self) -> None:
        self._properties: dict[str, Any] = {}

    def create_or_update(self, group: str, namespace: str, name: str, settings: Any) -> Any:
        if isinstance(settings, dict):
            _ask("POST", "hubs", {"name": name, "partition_count": settings["partition_count"]})
        return self._properties.setdefault(name, _Named(name=name))

    def get(self, group: str, namespace: str, name: str) -> Any:
        return self._properties.setdefault(name, _Named(name=name))

    def delete(self, group: str, namespace: str, name: str) -> None:
        _ask("DELETE", f"hubs?hub={name}")


def _ask(method: str, path: str, body: Any = None) -> None:
    import ssl

    context = ssl.create_default_context(cafile=_AUTHORITY)
    request = urllib.request.Request(
        f"https://localhost/$busway/{path}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer any"},
        method=method,
    )
    urllib.request.urlopen(request, context=context, timeout=30).close()


class EventHubManagementClient:
    """Creates event hubs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.namespaces = _Namespaces()
        self.event_hubs = _Hubs()


class ResourceManagementClient:
    """Accepts requests for resource groups, which the broker does not need."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        nothing = lambda *_, **__: None  # noqa: E731 - it has no name anywhere
        self.resource_groups = _Named(create_or_update=lambda name, _: _Named(name=name), begin_delete=nothing)


class _Models(types.ModuleType):
    """Any model of the Resource Manager."""

    def __getattr__(self, name: str) -> Any:
        if name == "AccessRights":
            return _Named(manage="Manage", send="Send", listen="Listen")
        return _Named


for _name, _client in (
    ("servicebus", ServiceBusManagementClient),
    ("eventhub", EventHubManagementClient),
    ("resource", ResourceManagementClient),
):
    _module = types.ModuleType(f"azure.mgmt.{_name}")
    setattr(_module, _client.__name__, _client)
    sys.modules[_module.__name__] = _module
    sys.modules[f"{_module.__name__}.models"] = _Models(f"{_module.__name__}.models")


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """Nothing is recorded."""
