"""The page of all findings of `busway check`, from their table in shared/review."""

from shared.review.checks import CHECKS, Check, Severity

_PAGE = """\
# Findings of `busway check`

<!-- Generated: make reference -->

What does a finding mean? The finding itself says where it is and how to fix it. Those with a * need [the
entities](../checks.md) of the namespaces.

## Errors

Messages certainly loop, get lost or stay behind.

{errors}

## Warnings

They may be intended.

{warnings}
"""


def check_page() -> str:
    """Return the text of docs/reference/checks.md."""
    errors = [check for check in CHECKS if check.severity is Severity.ERROR]
    warnings = [check for check in CHECKS if check.severity is not Severity.ERROR]
    return _PAGE.format(errors="\n".join(map(_line, errors)), warnings="\n".join(map(_line, warnings)))


def _line(check: Check) -> str:
    return f"- `{check.name}`{'*' if check.needs_entities else ''}: {check.meaning}"
