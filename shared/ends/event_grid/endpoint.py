"""The address and the credentials of an Event Grid topic or namespace, from the app's settings."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from shared.access.setting_form import Fault, SettingForm
from shared.ends.loopback import is_loopback
from shared.errors import TargetRefused

ADDRESS_SUFFIX = "__topicEndpointUri"
"""After the name of a setting: the address for managed identity, as in the Functions host."""
EXPECTED = "expected Endpoint=https://TOPIC.REGION-1.eventgrid.azure.net/api/events;SharedAccessKey=KEY"
SERVICES = (
    *("eventgrid.azure.net", "eventgrid.azure.us", "eventgrid.azure.cn"),
    *("eventgrid.azure.eaglex.ic.gov", "eventgrid.azure.microsoft.scloud"),
)
"""The names of Event Grid: that of Azure's public cloud, and those of the other clouds."""
_TOPIC_PATH = "/api/events"
_WITHOUT_TLS = "has an endpoint without TLS", "expected https://"


class EventGridEndpoint(NamedTuple):
    """The address of a topic, or of a namespace with topics; without a key the app's identity is used."""

    url: str
    key: str | None

    @property
    def is_namespace(self) -> bool:
        """Whether the address is that of a namespace, which has any number of topics."""
        return urlsplit(self.url).path in {"", "/"}

    def __repr__(self) -> str:
        """Return the address only."""
        return f"EventGridEndpoint({self.url})"


def event_grid_fault(text: str) -> Fault | None:
    """Return the problem of the text of a setting or secret, and how to fix it; quotes nothing of it."""
    parts = _parts(text)
    if set(parts) != {"endpoint", "sharedaccesskey"} or not parts["sharedaccesskey"]:
        return "is not the address and key of an Event Grid topic", EXPECTED
    return _address_fault(parts["endpoint"])


def _address_fault(text: str) -> Fault | None:
    try:
        url = urlsplit(text)
        host = url.hostname
    except ValueError:
        host = None
    if not host or url.path not in {"", "/", _TOPIC_PATH} or url.query:
        return "has no valid endpoint", EXPECTED
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(host)):
        return _WITHOUT_TLS
    return None


def _identity_fault(text: str) -> Fault | None:
    # The SDK sends tokens over TLS only, to this machine too.
    return _address_fault(text) or (None if urlsplit(text).scheme == "https" else _WITHOUT_TLS)


SETTING_FORM = SettingForm(
    lambda text, _: event_grid_fault(text),
    f"{EXPECTED}, or {{setting}}{ADDRESS_SUFFIX} with the address alone",
    ADDRESS_SUFFIX,
    _identity_fault,
)


def event_grid_endpoint_of(setting: str, settings: Mapping[str, str]) -> EventGridEndpoint:
    """Return the endpoint that an app setting names; raises TargetRefused."""
    problem = SETTING_FORM.problem(setting, settings)
    if problem is not None:
        raise TargetRefused(str(problem))
    text = settings.get(setting)
    return event_grid_endpoint(text) if text else EventGridEndpoint(settings[setting + ADDRESS_SUFFIX], None)


def event_grid_endpoint(text: str) -> EventGridEndpoint:
    """Return the endpoint that a valid *text* has."""
    parts = _parts(text)
    return EventGridEndpoint(parts["endpoint"], parts["sharedaccesskey"])


def _parts(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split(";") if each.strip())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
