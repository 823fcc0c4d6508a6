"""The editors that a task file may name; each one's module is imported when a task first uses it."""

import difflib
import importlib
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Discriminator, GetJsonSchemaHandler, PlainValidator, Tag, TypeAdapter, ValidationInfo
from pydantic.json_schema import JsonSchemaValue

from shared.editors.options import Step

# claim-check is the only step in shared/editors/claim_check.py.
_VERBS = (
    *("attest", "batch", "chain", "claim-check", "claim-restore", "cloudevents", "compress", "decompress", "decrypt"),
    *("deduplicate", "encrypt", "enrich", "filter", "partition", "properties", "python", "re-encrypt", "reduce"),
    *("route", "sign", "split", "transcode", "transform", "validate", "verify-chain", "verify"),
)


class _Steps(Mapping[str, type[Step]]):
    """The step classes by verb; a lookup imports the editor's module."""

    def __getitem__(self, verb: str) -> type[Step]:
        return _step_class(verb)

    def __iter__(self) -> Iterator[str]:
        return iter(_VERBS)

    def __len__(self) -> int:
        return len(_VERBS)

    def __contains__(self, verb: object) -> bool:
        return verb in _VERBS


STEPS: Mapping[str, type[Step]] = _Steps()
"""The step classes of all editors by verb."""


@cache
def _step_class(verb: str) -> type[Step]:
    if verb not in _VERBS:
        raise KeyError(verb)
    module = importlib.import_module(f"shared.editors.{verb.replace('-', '_')}")
    own = (each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__)
    return next(each for each in own if issubclass(each, Step))


def _read_step(step: object, info: ValidationInfo) -> Step:
    """Return the step that a mapping with one verb describes."""
    if isinstance(step, Step):
        return step
    if not isinstance(step, dict) or len(step) != 1:
        named = " and ".join(map(str, step)) if isinstance(step, dict) else ""
        raise ValueError(f"has {named or 'no editor'}, expected one editor with its options")
    verb = str(next(iter(step)))
    if verb not in STEPS:
        near = difflib.get_close_matches(verb, STEPS, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(STEPS)}"
        raise ValueError(f"unknown editor {verb!r}, {meant}")
    return STEPS[verb].model_validate(step, context=info.context)


class _SchemaOfAllSteps:
    """Describes a step in the JSON schema as one of all editors, which imports all of them."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: object, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        step: Any = reduce(or_, [Annotated[step, Tag(verb)] for verb, step in STEPS.items()])
        return handler(TypeAdapter(Annotated[step, Discriminator(Step.verb)]).core_schema)


type EditorStep = Annotated[Step, PlainValidator(_read_step), _SchemaOfAllSteps]
"""One editor with its options; exactly one key."""
