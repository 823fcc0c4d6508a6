"""The model of `config/failover.yaml`: the sites that applications may use, and where the active one is published."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from shared.editors.options import Strict
from shared.tasks.models import SETTING, SITE

SEND, RECEIVE = "send", "receive"
FAILOVER = "failover.yaml"


def _is_path(text: str) -> str:
    if not text or text.endswith("/"):
        raise ValueError("the file does not exist")
    return text


type FilePath = Annotated[str, AfterValidator(_is_path)]
type HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_-]+)*\.?$")]


class Site(Strict):
    """A site: the connection to inspect it, and the name that an alias in DNS points to."""

    connection: str
    """Alias of the connection with which `busway failover` looks into the site."""
    name: HostName | None = None
    """Host name to which an alias in DNS points."""


class ZoneFile(Strict):
    """A DNS zone in a master file, which your name server serves; relative paths start at failover.yaml."""

    file: FilePath
    """Path of the master file."""
    origin: HostName
    """Name of the zone."""


class AzureDns(Strict):
    """A zone of Azure DNS."""

    subscription: Annotated[str, Field(min_length=1)]
    """Id of the subscription."""
    resource_group: Annotated[str, Field(min_length=1)]
    """Name of the resource group."""
    zone: HostName
    """Name of the zone."""


class EndpointFile(Strict):
    """The endpoint document in a file; it is signed if an app setting contains a private key."""

    file: FilePath
    """Path of the document."""
    key_setting: Annotated[str, Field(pattern=SETTING)] | None = None
    """Name of the app setting with the private key, Ed25519 in PEM."""
    key_id: Annotated[str, Field(min_length=1)] | None = None
    """The id by which applications know its public key."""
    valid_days: Annotated[int, Field(ge=1, le=3650)] | None = None
    """Days after which the document expires; each switch starts them again."""

    @model_validator(mode="after")
    def _names_both_or_neither(self) -> Self:
        if (self.key_setting is None) != (self.key_id is None):
            raise ValueError("has only one of key_setting and key_id, expected both")
        return self


class FailoverFile(Strict):
    """The content of failover.yaml."""

    primary: Annotated[str, Field(pattern=SITE)]
    """The site that applications use normally."""
    sites: Annotated[dict[Annotated[str, Field(pattern=SITE)], Site], Field(min_length=2)]
    """The sites by their name."""
    entities: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Entities that must be empty at a site before it becomes secondary: QUEUE or TOPIC/Subscriptions/NAME."""
    aliases: dict[Annotated[str, Field(pattern=f"^({SEND}|{RECEIVE})$")], HostName] = Field(default_factory=dict)
    """The alias in DNS for each role; both may have the same."""
    prefix: str = "_azure_servicebus._amqp"
    """Prefix of the names of the SRV records."""
    zone: ZoneFile | None = None
    """A master file that has the aliases."""
    azure_dns: AzureDns | None = None
    """A zone of Azure DNS that has the aliases."""
    endpoints: EndpointFile | None = None
    """A document that clients read, in place of DNS."""

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        places = [name for name in ("zone", "azure_dns", "endpoints") if getattr(self, name) is not None]
        if len(places) != 1:
            found = " and ".join(places) or "no place"
            raise ValueError(f"names {found}, expected one of zone, azure_dns, endpoints")
        if self.primary not in self.sites:
            raise ValueError(f"the primary {self.primary!r} is not one of the sites {', '.join(self.sites)}")
        if self.endpoints is None:
            nameless = [name for name, site in self.sites.items() if site.name is None]
            if nameless or self.aliases.keys() != {SEND, RECEIVE}:
                raise ValueError(f"a zone needs aliases for {SEND} and {RECEIVE}, and a name for each site")
        elif self.aliases:
            raise ValueError("has aliases, expected only with a zone")
        return self
