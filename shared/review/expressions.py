"""Checks the regular expressions in JSON schemas."""

from collections.abc import Iterator

from shared.editors.content.ecma_patterns import python_pattern
from shared.editors.validate import ValidateStep
from shared.review import checks
from shared.review.findings import Finding
from shared.review.network import Network
from shared.review.quantifiers import nested_quantifier


def findings(network: Network) -> Iterator[Finding]:
    """Yield regular expressions that a short text may keep busy."""
    for task in network.tasks:
        for number, step in enumerate(task.editors):
            schema = step.options.body_schema if isinstance(step, ValidateStep) else None
            for pattern in () if schema is None else schema.patterns:
                problem = nested_quantifier(python_pattern(pattern.expression))
                if problem is not None:
                    path = network.place(task, f"editors[{number}].validate.schema")
                    yield Finding(
                        checks.SLOW_PATTERN, path, f"{pattern.file}: {pattern.path}: {pattern.expression!r}: {problem}"
                    )
