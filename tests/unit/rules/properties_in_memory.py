"""Properties of a message, without the message."""

from shared.amqp.values import Value
from shared.rules import SYSTEM_PROPERTIES

_CANONICAL_NAMES = {system_property.name for system_property in SYSTEM_PROPERTIES.values()}


class PropertiesInMemory:
    """Properties in memory that check how rules use them: canonical system names, user names in lower case."""

    def __init__(self, *, system: dict[str, Value] | None = None, **user: Value) -> None:
        self.system_values = dict(system or {})
        self.user_values = dict(user)

    def system(self, name: str) -> Value | None:
        assert name in _CANONICAL_NAMES
        return self.system_values.get(name)

    def user(self, name: str) -> Value | None:
        assert name == name.lower()
        spelled = self._spelling(name)
        return None if spelled is None else self.user_values[spelled]

    def set_system(self, name: str, value: Value) -> None:
        assert name in _CANONICAL_NAMES
        self.system_values[name] = value

    def remove_system(self, name: str) -> None:
        assert name in _CANONICAL_NAMES
        self.system_values.pop(name, None)

    def set_user(self, name: str, value: Value) -> None:
        self.user_values[self._spelling(name) or name] = value

    def remove_user(self, name: str) -> None:
        spelled = self._spelling(name)
        if spelled is not None:
            del self.user_values[spelled]

    def _spelling(self, name: str) -> str | None:
        return next((user_value for user_value in self.user_values if user_value.lower() == name.lower()), None)
