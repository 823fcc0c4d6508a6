"""The form of an app setting for a service: a text with credentials, or an address for the app's identity."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from shared.errors import ConfigError, Problem

type Fault = tuple[str, str]
"""What is wrong with a text, and how to fix it; it quotes nothing that may be secret."""


@dataclass(frozen=True, slots=True)
class SettingForm:
    """The form in which the app settings of one service are."""

    fault: Callable[[str, Collection[str]], Fault | None]
    """Returns what is wrong with a text; the collection has the hubs that are used with it."""
    missing: str
    """How to fix a missing setting; it may contain `{setting}`."""
    suffix: str | None = None
    """What follows the name of a setting with an address for the app's identity; None if there is no such form."""
    address_fault: Callable[[str], Fault | None] | None = None
    """Returns what is wrong with an address; by default nothing is."""

    def problem(self, setting: str, settings: Mapping[str, str], hubs: Collection[str] = ()) -> Problem | None:
        """Return the problem of an app setting, or None."""
        if text := settings.get(setting):
            return _problem(setting, self.fault(text, hubs))
        address = "" if self.suffix is None else settings.get(setting + self.suffix)
        if not address:
            return Problem(setting, "the app setting is missing", self.missing.replace("{setting}", setting))
        fault = None if self.address_fault is None else self.address_fault(address)
        return _problem(f"{setting}{self.suffix}", fault)

    def text(self, setting: str, settings: Mapping[str, str], hubs: Collection[str] = ()) -> str | None:
        """Return the text in an app setting, None if it names an address; raises ConfigError."""
        problem = self.problem(setting, settings, hubs)
        if problem is not None:
            raise ConfigError([problem])
        return settings.get(setting) or None


def _problem(setting: str, fault: Fault | None) -> Problem | None:
    return None if fault is None else Problem(setting, f"the app setting {fault[0]}", fault[1])
