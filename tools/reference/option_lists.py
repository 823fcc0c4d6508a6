"""Lists of the options in a JSON schema: each key with its type, default and meaning."""

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from shared.durations import SECONDS, written
from shared.editors.options import DURATION_PATTERN

type Schema = Mapping[str, Any]

# Words for types whose name says more than their schema.
_NAMED = {
    "FilterText": "rule",
    "ActionText": "action of a rule",
    "EditingAction": "action of a rule",
    "ExpressionText": "JMESPath expression",
    "MediaType": "media type",
}
_FEW = 3


class OptionLists:
    """The lists of a model, and of all mappings that its options may be."""

    def __init__(
        self,
        definitions: Mapping[str, Schema],
        elsewhere: Mapping[str, str] | None = None,
        described: set[str] | None = None,
    ) -> None:
        """
        Describe options with the *definitions* of a schema.

        *elsewhere* has the words for types of other pages, *described* the models and options that the page has.
        """
        self._definitions = definitions
        self._elsewhere = {**_NAMED, **(elsewhere or {})}
        self._described = set() if described is None else described
        self._mappings: dict[str, Schema] = {}

    def of_model(self, model: Schema, name: str = "") -> Iterator[str]:
        """Yield the list of a model, then those of the mappings in it."""
        self._described.add(name)
        yield from self._list(model)
        yield from self._of_mappings()

    def of_names(self, model: Schema) -> Iterator[str]:
        """Yield the lists of what a mapping has under each name."""
        self._type(model)
        yield from self._of_mappings()

    def of_option(self, name: str, option: Schema) -> Iterator[str]:
        """Yield the list of an option: of its members, if it is a mapping."""
        model, whole = self._resolved(option)
        if "properties" in whole:
            yield from self.of_model(whole, model)
            return
        yield line(name, self._type(option), "required", option.get("description", ""))
        yield ""
        yield from self._of_mappings()

    def _of_mappings(self) -> Iterator[str]:
        while self._mappings.keys() - self._described:
            name = next(mapping for mapping in self._mappings if mapping not in self._described)
            self._described.add(name)
            mapping = self._mappings[name]
            yield from (f"**{_label(name, mapping)}**: {_words_of(mapping)}", "")
            if any("const" not in option for option in mapping["properties"].values()):
                yield from self._list(mapping)

    def _list(self, model: Schema) -> Iterator[str]:
        required = model.get("required", ())
        lines = {}
        for name, option in model["properties"].items():
            if "const" in option:
                continue
            default = "required" if name in required else _default(option)
            words = option.get("description") or _words_of(self._resolved(option)[1])
            lines[name] = line(name, self._type(option), default, words)
        yield from (each for each in lines.values() if each not in self._described)
        if again := [f"`{name}`" for name, each in lines.items() if each in self._described]:
            yield f"- {', '.join(again)}: as above."
        self._described.update(lines.values())
        yield ""

    def _resolved(self, schema: Schema) -> tuple[str, Schema]:
        """Return what a schema refers to, and its name."""
        name = ""
        while "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            schema = self._definitions[name]
        return name, schema

    def _type(self, schema: Schema) -> str:
        first = schema.get("$ref", "").rsplit("/", 1)[-1]
        name, schema = self._resolved(schema)
        if first in self._elsewhere or name in self._elsewhere:
            return self._elsewhere.get(first) or self._elsewhere[name]
        for union in ("anyOf", "oneOf"):
            if union in schema:
                kinds = [self._type(kind) for kind in schema[union] if kind.get("type") != "null"]
                return (" or " if len(kinds) <= _FEW else ", ").join(dict.fromkeys(kinds))
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return ", ".join(code(value) for value in values if value is not False or "off" not in values)
        if schema.get("type") == "object" and "properties" in schema:
            self._mappings.setdefault(name, schema)
            label = _label(name, schema)
            return label if label.startswith("`") else f"mapping: {label}"
        if schema.get("type") == "object":
            (value,) = schema.get("patternProperties", {"": schema.get("additionalProperties")}).values()
            return f"mapping of names to {self._type(value)}"
        if schema.get("type") == "array":
            return f"list of {self._type(schema['items'])}"
        return _scalar(schema)


def line(name: str, kind: str, default: str, words: str) -> str:
    """Return the line of an option or an app setting."""
    value = "; ".join(filter(None, (kind, default)))
    return f"- `{name}`{f' ({value})' if value else ''}: {' '.join(words.split())}"


def _label(name: str, model: Schema) -> str:
    """Return the heading of a mapping: the option that distinguishes it from others, or its name."""
    tags = [f"`{option}: {value['const']}`" for option, value in model["properties"].items() if "const" in value]
    return tags[0] if tags else name


def _words_of(model: Schema) -> str:
    return str(model.get("description", "")).replace("\n", " ")


def _scalar(schema: Schema) -> str:
    match schema.get("type"):
        case "integer" | "number" as kind:
            return ("whole number" if kind == "integer" else "number") + _bounds(schema)
        case "boolean":
            return "boolean"
        case "string":
            return "duration" if schema.get("pattern") == DURATION_PATTERN else "text"
        case None:
            return "anything"
    raise ValueError(f"{schema}: a type without words on these pages")


def _bounds(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None and most is None:
        return ""
    return f" up to {most:,}" if least is None else f" from {least:,}" + ("" if most is None else f" to {most:,}")


def _default(option: Schema) -> str:
    value = option.get("default")
    if value is None or isinstance(value, dict):
        return ""
    if option.get("pattern") == DURATION_PATTERN and (duration := written(str(value))) is not None:
        return code(_as_written(duration))
    return code(value)


def _as_written(duration: timedelta) -> str:
    """Return a duration in the largest unit in which it is a whole number."""
    milliseconds = round(duration / timedelta(milliseconds=1))
    sizes = {unit: round(seconds * 1000) for unit, seconds in SECONDS.items() if unit != "w"}
    unit = max((unit for unit in sizes if milliseconds % sizes[unit] == 0), key=lambda unit: sizes[unit])
    return f"{milliseconds // sizes[unit]}{unit}"


def code(value: object) -> str:
    """Return a value as it is written in a file."""
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def cell(text: str) -> str:
    """Return a text as the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
