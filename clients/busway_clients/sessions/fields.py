"""Reads and checks the properties of a row, which may be malformed."""

import json
from collections.abc import Mapping

from busway_clients.sessions.errors import JournalMalformed
from busway_clients.sessions.rows import Properties

LONGEST_NUMBER = 19
"""Digits of a 64-bit number, the largest that services count with."""


def whole_number(text: str) -> int | None:
    """Return *text* as a number, None unless it is 0 or more with at most LONGEST_NUMBER digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None


class Fields:
    """Reads properties of a row by type; every method raises JournalMalformed."""

    def __init__(self, properties: Properties, where: str) -> None:
        self._properties = properties
        self._where = where

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._properties.get(name)
        if not isinstance(value, str):
            raise self._malformed(name, value, "text")
        return value

    def integer(self, name: str) -> int:
        """Return a number from 0."""
        value = self._properties.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._malformed(name, value, "a number from 0")
        return value

    def big(self, name: str) -> int | None:
        """Return an integer of any size, which is stored as text, since integers of a table have 32 bits."""
        if name not in self._properties:
            return None
        try:
            return int(self.text(name))
        except ValueError as error:
            raise self._malformed(name, self._properties[name], "digits") from error

    def count(self, name: str) -> int:
        """Return a number from 0 with at most LONGEST_NUMBER digits, which is stored as text."""
        value = self.text(name)
        number = whole_number(value)
        if number is None:
            raise self._malformed(name, value, "digits")
        return number

    def numbers(self, name: str) -> Mapping[str, int]:
        """Return an object of whole numbers."""
        value = self._json(name)
        if not isinstance(value, dict) or not all(type(each) is int for each in value.values()):
            raise self._malformed(name, value, "an object of numbers")
        return value

    def objects(self, name: str) -> Mapping[str, dict[str, str | int]]:
        """Return an object of objects; the caller checks their values."""
        value = self._json(name)
        if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
            raise self._malformed(name, value, "an object of objects")
        return value

    def _json(self, name: str) -> object:
        try:
            value: object = json.loads(self.text(name))
        except ValueError as error:
            raise self._malformed(name, self._properties[name], "JSON") from error
        return value

    def _malformed(self, name: str, value: object, expected: str) -> JournalMalformed:
        seen = "missing" if value is None else f"of type {type(value).__name__}"
        return JournalMalformed(f"{self._where}: {name} is {seen} or not well formed, expected {expected}")
