"""
JSON Schema 2020-12, read from files in the configuration folder, for bodies.

References can lead only to files in that folder: nothing is fetched. `format` is an annotation, as in the
specification, and rejects nothing.

Source: JSON Schema draft 2020-12, core and validation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import quote, unquote, urljoin, urlsplit

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema_specifications import REGISTRY as SPECIFICATIONS  # type: ignore[import-untyped]
from pydantic import PlainValidator, ValidationInfo, WithJsonSchema
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT202012

from shared.codecs.json import ExactJson, read, read_exact
from shared.codecs.plain import Plain
from shared.codecs.plain_json import PlainJson
from shared.editors.content.ecma_patterns import NotAPattern, python_pattern
from shared.editors.content.exact_schema import Schema, UnknownVocabulary, readable, validator_of, vocabularies_of
from shared.editors.options import configured_file
from shared.errors import MessageRejected

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The configuration folder is the root of this address, so that relative references work as on the web.
_ROOT = "file:///"
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
    Decimal: "a number",
    type(None): "null",
}


type Resolver = Any
"""A resolver of the library, which does not export the class."""


class JsonSchema:
    """A schema, compiled once, whose references are checked."""

    def __init__(self, validator: Validator, names: frozenset[str], patterns: Sequence["Pattern"] = ()) -> None:
        """Check with *validator*; *names* are the property names in the schema, *patterns* its expressions."""
        self.patterns = patterns
        self._validator = validator
        self._names = names
        self._originals = {python_pattern(pattern.expression): pattern.expression for pattern in patterns}

    def check(self, body: bytes) -> None:
        """Raise MessageRejected if *body* is no JSON that matches the schema, with the path and the expectation."""
        value = cast("Any", read_exact(body))  # the library does not know that Decimals are numbers
        try:
            errors = list(islice(self._validator.iter_errors(value), _MOST_ERRORS))
        except RecursionError as error:
            problem = "body is nested too deeply to be compared with the schema"
            raise MessageRejected("SchemaViolated", problem) from error
        except OverflowError as error:
            problem = "body has a number too large to be compared with the schema"
            raise MessageRejected("SchemaViolated", problem) from error
        if errors:
            raise MessageRejected("SchemaViolated", self._describe(best_match(errors)))

    def _describe(self, error: ValidationError) -> str:
        place = "$" + "".join(map(self._step, error.absolute_path))
        if error.validator == "required":
            present = cast("dict[str, ExactJson]", error.instance)
            missing = [name for name in cast("list[str]", error.validator_value) if name not in present]
            return f"{place}: has no {', '.join(missing)}"
        seen = f"{place}: got {_JSON_TYPES[type(error.instance)]}"
        if error.validator is None:
            return f"{seen}, expected nothing"
        wanted: object = error.validator_value
        if error.validator == "pattern":
            wanted = self._originals.get(str(wanted), wanted)
        expected = "" if _has_schemas(wanted) else f" {_written(wanted)}"
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
    return JsonSchema(files.validator(address), names, files.patterns())


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
        self._dialects: dict[str, PurePosixPath] = {}
        """The dialects that the files name, each with the first file that does."""

    @staticmethod
    def address(name: PurePosixPath) -> str:
        """Return the address of a file, in which the configuration folder is the root."""
        return _ROOT + quote(name.as_posix())

    def validator(self, address: str) -> Validator:
        """Return the validator of the schema at *address*, after its files were read; raises ValueError."""
        self._dialects.setdefault(_DIALECT, PurePosixPath())
        others = [dialect for dialect in self._dialects if dialect != _DIALECT]
        vocabularies = None
        if others:
            name = self._dialects[others[0]]
            if len(others) > 1:
                raise _FileAtFault(f"{name}: $schema: names another dialect than {self._dialects[others[1]]}")
            vocabularies = self._vocabularies(others[0], name)
        # Its files may be referenced, and resources in them, as a whole.
        registry = Registry[Any]().with_resources(self._read.items()).crawl()
        made = validator_of(vocabularies)
        return made({"$ref": address}, registry=registry)

    def patterns(self) -> tuple[Pattern, ...]:
        """Return the regular expressions in the files that were read."""
        return tuple(self._patterns)

    def names(self, address: str) -> Iterator[str]:
        """Yield the property names in the schemas; raises ValueError for an invalid file or reference."""
        # The type checker does not see the arguments that attrs gives the class.
        registry = Registry[Any](retrieve=self._retrieve)  # type: ignore[call-arg]
        # The address of a schema, the schema, and the resolver of its references: below its own `$id`.
        waiting = [(address, *_resolved(registry.resolver(), address, address))]
        known: set[int] = set()
        while waiting:
            place, schema, resolver = waiting.pop()
            if not isinstance(schema, dict) or id(schema) in known:
                continue
            known.add(id(schema))
            properties = schema.get("properties", {})
            yield from properties if isinstance(properties, dict) else ()
            references = [schema[key] for key in _REFERENCES if key in schema]
            waiting += [(reference, *_resolved(resolver, reference, place)) for reference in references]
            parts = DRAFT202012.create_resource(schema).subresources()
            waiting += [(place, part.contents, resolver.in_subresource(part)) for part in parts]

    def _retrieve(self, address: str) -> Resource[Any]:
        if address not in self._read:
            if address in SPECIFICATIONS:
                self._keep(address, readable(SPECIFICATIONS.contents(address), lambda *_: None))
            elif address.startswith(_ROOT):
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
            schema = {**schema, "$id": identity}
            self._read[address] = DRAFT202012.create_resource({"$ref": identity})
        self._read.setdefault(identity, DRAFT202012.create_resource(schema))

    def _schema(self, name: PurePosixPath) -> Schema:
        """Return the schema in one file, which is a valid schema by itself."""
        try:
            content = (self._folder / name).read_bytes()
            schema, exact = read(content), read_exact(content)
        except FileNotFoundError as error:
            raise _FileAtFault(f"{name}: the file is missing") from error
        except OSError as error:
            raise _FileAtFault(f"{name}: the file cannot be read: {error.strerror}") from error
        except MessageRejected as error:
            raise _FileAtFault(f"{name}: {error.description.replace('body', 'the file', 1)}") from error
        if not isinstance(schema, dict | bool):
            raise _FileAtFault(f"{name}: is not a JSON schema, expected an object")
        dialect = schema.get("$schema", _DIALECT) if isinstance(schema, dict) else _DIALECT
        if not isinstance(dialect, str):
            raise _FileAtFault(f"{name}: $schema: names another dialect, expected {_DIALECT}")
        self._dialects.setdefault(dialect.rstrip("#"), name)
        try:
            Draft202012Validator(Draft202012Validator.META_SCHEMA).validate(schema)
        except ValidationError as error:
            raise _FileAtFault(f"{name}: {error.json_path}: {error.message}") from error
        try:
            return readable(exact, partial(self._note, name.as_posix()))
        except NotAPattern as error:
            raise _FileAtFault(f"{name}: {error}") from error

    def _note(self, file: str, path: str, expression: str) -> None:
        self._patterns[Pattern(file, path, expression)] = None

    def _vocabularies(self, dialect: str, name: PurePosixPath) -> frozenset[str]:
        """Return the vocabularies of a *dialect* that a file of the folder defines, which the file *name* uses."""
        for path in sorted((self._folder / self._beside).glob("*.json")):
            try:
                found = read(path.read_bytes())
                if isinstance(found, dict) and found.get("$id") == dialect and "$vocabulary" in found:
                    return vocabularies_of(found)
            except (MessageRejected, OSError):
                continue  # another file, which may be anything
            except UnknownVocabulary as error:
                raise _FileAtFault(f"{path.name}: {error}") from error
        raise _FileAtFault(f"{name}: $schema: names another dialect, expected {_DIALECT}")


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


def _written(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:  # a Decimal
        text = PlainJson().write(cast("Plain", value)).decode()
    return text if len(text) <= _LONGEST_EXPECTATION else f"{text[:_LONGEST_EXPECTATION]}…"


def _has_schemas(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))
