"""
JSON Schema 2020-12, read from files in the configuration folder, for bodies.

References can lead only to files in that folder: nothing is fetched. `format` is an annotation, as in the
specification, and rejects nothing.

Source: JSON Schema draft 2020-12, core and validation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import quote, unquote, urljoin, urlsplit

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from pydantic import PlainValidator, ValidationInfo, WithJsonSchema
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT202012

from shared.codecs.json import Json, read
from shared.editors.options import configured_file
from shared.errors import MessageRejected

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The configuration folder is the root of this address, so that relative references work as on the web.
_ROOT = "file:///"
# Keywords that contain values and no schemas.
_VALUES = frozenset(("const", "default", "enum", "examples"))
_REFERENCES = ("$ref", "$dynamicRef")
# One of them is reported; a body can have a million errors.
_MOST_ERRORS = 20
_LONGEST_EXPECTATION = 200
_JSON_TYPES: Mapping[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


type Schema = Any
type Resolver = Any
"""A resolver of the library, which does not export the class."""


class JsonSchema:
    """A schema, compiled once, whose references are checked."""

    def __init__(
        self, validator: Draft202012Validator, names: frozenset[str], patterns: Sequence["Pattern"] = ()
    ) -> None:
        """Check with *validator*; *names* are the property names in the schema, *patterns* its expressions."""
        self.patterns = patterns
        self._validator = validator
        self._names = names

    def check(self, value: Json) -> None:
        """Raise MessageRejected with the path and the expectation if *value* does not match the schema."""
        try:
            errors = list(islice(self._validator.iter_errors(value), _MOST_ERRORS))
        except RecursionError as error:
            raise MessageRejected(
                "SchemaViolated", "body is nested too deeply to be compared with the schema"
            ) from error
        except OverflowError as error:
            raise MessageRejected(
                "SchemaViolated", "body has a number too large to be compared with the schema"
            ) from error
        if errors:
            raise MessageRejected("SchemaViolated", self._describe(best_match(errors)))

    def _describe(self, error: ValidationError) -> str:
        place = "$" + "".join(map(self._step, error.absolute_path))
        if error.validator == "required":
            present = cast("dict[str, Json]", error.instance)
            missing = [name for name in cast("list[str]", error.validator_value) if name not in present]
            return f"{place}: has no {', '.join(missing)}"
        seen = f"{place}: got {_JSON_TYPES[type(error.instance)]}"
        if error.validator is None:
            return f"{seen}, expected nothing"
        expected = "" if _has_schemas(error.validator_value) else f" {_written(error.validator_value)}"
        return f"{seen}, expected {error.validator}{expected}"

    def _step(self, step: str | int) -> str:
        """Return a step of a path; names that are only in the body may be secret and become *."""
        if isinstance(step, int):
            return f"[{step}]"
        return f".{step}" if step in self._names else ".*"


def load_schema(name: object, info: ValidationInfo) -> JsonSchema:
    """Return the schema in a file of the configuration folder; raises ValueError with the file and the path in it."""
    if not isinstance(name, str):
        raise ValueError("expected the name of a file")  # noqa: TRY004 - pydantic collects ValueErrors
    main = configured_file(name, info)
    files = _SchemaFiles(main.parents[len(PurePosixPath(name).parts) - 1], PurePosixPath(name).parent)
    address = files.address(PurePosixPath(name))
    names = frozenset(files.names(address))
    return JsonSchema(Draft202012Validator({"$ref": address}, registry=files.registry()), names, files.patterns())


type SchemaFile = Annotated[JsonSchema, PlainValidator(load_schema), WithJsonSchema({"type": "string", "minLength": 1})]


class Pattern(NamedTuple):
    """A regular expression in a schema."""

    file: str
    path: str
    expression: str


class _FileAtFault(ValueError):
    """A file of a schema that cannot be used."""


class _SchemaFiles:
    """The files of one schema, each read once."""

    def __init__(self, folder: Path, beside: PurePosixPath) -> None:
        """Read from *folder*; schemas that are referenced by `$id` are in its folder *beside*."""
        self._folder = folder
        self._beside = beside
        self._read: dict[str, Resource[Any]] = {}
        self._patterns: dict[Pattern, None] = {}

    @staticmethod
    def address(name: PurePosixPath) -> str:
        """Return the address of a file, in which the configuration folder is the root."""
        return _ROOT + quote(name.as_posix())

    def registry(self) -> Registry[Any]:
        """Return the files that were read."""
        return Registry[Any]().with_resources(self._read.items())

    def patterns(self) -> tuple[Pattern, ...]:
        """Return the regular expressions in the files that were read."""
        return tuple(self._patterns)

    def names(self, address: str) -> Iterator[str]:
        """Yield the property names in the schemas; raises ValueError for an invalid file or reference."""
        # The type checker does not see the arguments that attrs gives the class.
        registry = Registry[Any](retrieve=self._retrieve)  # type: ignore[call-arg]
        # The address of a schema, the schema, and the resolver of its references.
        waiting = [(address, *_resolved(registry.resolver(), address, address))]
        known: set[int] = set()
        while waiting:
            place, schema, resolver = waiting.pop()
            if not isinstance(schema, dict) or id(schema) in known:
                continue
            known.add(id(schema))
            resource = DRAFT202012.create_resource(schema)
            resolver = resolver.in_subresource(resource)
            yield from schema.get("properties", {})
            references = [schema[key] for key in _REFERENCES if key in schema]
            waiting += [(each, *_resolved(resolver, each, place)) for each in references]
            parts = resource.subresources()
            waiting += [(place, each.contents, resolver) for each in parts]

    def _retrieve(self, address: str) -> Resource[Any]:
        if address not in self._read:
            if address.startswith(_ROOT):
                name = PurePosixPath(unquote(urlsplit(address).path)[1:])
                if ".." in name.parts:
                    raise NoSuchResource(address)
                self._keep(address, self._schema(name))
            else:
                self._keep_those_beside()
        if address not in self._read:
            raise NoSuchResource(address)
        return self._read[address]

    def _keep_those_beside(self) -> None:
        """Keep every schema of the folder; one of them may have the `$id`."""
        for path in sorted((self._folder / self._beside).glob("*.json")):
            name = self._beside / path.name
            self._keep(self.address(name), self._schema(name))

    def _keep(self, address: str, schema: Schema) -> None:
        """Keep a schema under its address and under its `$id`, from which the library resolves references."""
        identity = urljoin(address, schema.get("$id", "")) if isinstance(schema, dict) else address
        if identity != address:
            self._read[address] = DRAFT202012.create_resource({"$ref": identity})
            schema = {key: value for key, value in schema.items() if key != "$id"}
        self._read.setdefault(identity, DRAFT202012.create_resource(schema))

    def _schema(self, name: PurePosixPath) -> Schema:
        """Return the schema in one file, which is a valid schema by itself."""
        try:
            schema = read((self._folder / name).read_bytes())
        except FileNotFoundError as error:
            raise _FileAtFault(f"{name}: the file is missing") from error
        except OSError as error:
            raise _FileAtFault(f"{name}: the file cannot be read: {error.strerror}") from error
        except MessageRejected as error:
            raise _FileAtFault(f"{name}: {error.description.replace('body', 'the file', 1)}") from error
        if not isinstance(schema, dict | bool):
            raise _FileAtFault(f"{name}: is not a JSON schema, expected an object")
        dialect = schema.get("$schema", _DIALECT) if isinstance(schema, dict) else _DIALECT
        if not isinstance(dialect, str) or dialect.rstrip("#") != _DIALECT:
            raise _FileAtFault(f"{name}: $schema: names another dialect, expected {_DIALECT}")
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise _FileAtFault(f"{name}: {error.json_path}: {error.message}") from error
        self._patterns |= dict.fromkeys(_patterns(schema, name.as_posix(), "$"))
        return schema


def _resolved(resolver: Resolver, reference: str, place: str) -> tuple[Schema, Resolver]:
    """Return the schema that a reference at *place* leads to, and the resolver of its references."""
    try:
        found = resolver.lookup(reference)
    except Unresolvable as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, _FileAtFault):
                raise cause from None
            cause = cause.__cause__
        problem = f"{place.removeprefix(_ROOT)}: {reference!r} is not found in the configuration folder"
        raise ValueError(problem) from error
    return found.contents, found.resolver


def _patterns(schema: Json, file: str, path: str) -> Iterator[Pattern]:
    """Yield the regular expressions of a schema, and of what it contains."""
    if isinstance(schema, list):
        for number, each in enumerate(schema):
            yield from _patterns(each, file, f"{path}[{number}]")
    if not isinstance(schema, dict):
        return
    for key, each in schema.items():
        if key == "pattern" and isinstance(each, str):
            yield Pattern(file, f"{path}.pattern", each)
        elif key == "patternProperties" and isinstance(each, dict):
            for expression, inner in each.items():
                yield Pattern(file, f"{path}.patternProperties", expression)
                yield from _patterns(inner, file, f"{path}.patternProperties[{expression!r}]")
        elif key not in _VALUES:
            yield from _patterns(each, file, f"{path}.{key}")


def _written(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_EXPECTATION else f"{text[:_LONGEST_EXPECTATION]}…"


def _has_schemas(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))
