"""The editors that a task file may name."""

import difflib
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Discriminator, Tag

from shared.editors.attest import AttestStep
from shared.editors.batch import BatchStep
from shared.editors.chain import ChainStep
from shared.editors.claim_check import ClaimCheckStep
from shared.editors.claim_restore import ClaimRestoreStep
from shared.editors.cloudevents import CloudEventsStep
from shared.editors.compress import CompressStep
from shared.editors.decompress import DecompressStep
from shared.editors.decrypt import DecryptStep
from shared.editors.deduplicate import DeduplicateStep
from shared.editors.encrypt import EncryptStep
from shared.editors.enrich import EnrichStep
from shared.editors.filter import FilterStep
from shared.editors.options import Step
from shared.editors.partition import PartitionStep
from shared.editors.properties import PropertiesStep
from shared.editors.python import PythonStep
from shared.editors.re_encrypt import ReEncryptStep
from shared.editors.reduce import ReduceStep
from shared.editors.route import RouteStep
from shared.editors.sign import SignStep
from shared.editors.split import SplitStep
from shared.editors.transcode import TranscodeStep
from shared.editors.transform import TransformStep
from shared.editors.validate import ValidateStep
from shared.editors.verify import VerifyStep
from shared.editors.verify_chain import VerifyChainStep

STEPS: dict[str, type[Step]] = {
    step.verb(): step
    for step in (
        AttestStep,
        BatchStep,
        ChainStep,
        ClaimCheckStep,
        ClaimRestoreStep,
        CloudEventsStep,
        CompressStep,
        DecompressStep,
        DecryptStep,
        DeduplicateStep,
        EncryptStep,
        EnrichStep,
        FilterStep,
        PartitionStep,
        PropertiesStep,
        PythonStep,
        ReEncryptStep,
        ReduceStep,
        RouteStep,
        SignStep,
        SplitStep,
        TranscodeStep,
        TransformStep,
        ValidateStep,
        VerifyChainStep,
        VerifyStep,
    )
}
"""The steps of all editors by their verbs."""


def _tag_of(step: object) -> str:
    # No tag is a verb: the path of a fault must not lead through the same key twice.
    return f"{step.verb() if isinstance(step, Step) else next(iter(step)) if isinstance(step, dict) else None} step"


def _of_one_editor(step: object) -> object:
    """Let through what names one editor that there is."""
    if isinstance(step, Step):
        return step
    if not isinstance(step, dict) or len(step) != 1:
        named = " and ".join(map(str, step)) if isinstance(step, dict) else ""
        raise ValueError(f"names {named or 'no editor'}, expected one editor with its options")
    verb = str(next(iter(step)))
    if verb not in STEPS:
        near = difflib.get_close_matches(verb, STEPS, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(STEPS)}"
        raise ValueError(f"no editor is called {verb!r}, {meant}")
    return step


if TYPE_CHECKING:
    type EditorStep = Step
else:
    # The union is made of the table, so that an editor is entered once.
    _ANY = reduce(or_, [Annotated[step, Tag(f"{verb} step")] for verb, step in STEPS.items()])
    type EditorStep = Annotated[_ANY, Discriminator(_tag_of), BeforeValidator(_of_one_editor)]
"""One editor with its options; exactly one key."""
