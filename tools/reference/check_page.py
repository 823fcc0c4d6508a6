"""The page of all findings of `busway check`, from their table in shared/review."""

from shared.review.checks import CHECKS, Check

_INTRO = """\
# Findings of `busway check`

<!-- Generated: make reference -->

What does a finding mean? The finding itself says where it is and how to fix it. An **error** is certain to make
messages loop, get lost or stay behind; a **warning** may be intended. Those with a * need [the entities](../checks.md)
of the namespaces.

"""


def check_page() -> str:
    """Return the text of docs/reference/checks.md."""
    return _INTRO + "\n".join(map(_row, CHECKS)) + "\n"


def _row(check: Check) -> str:
    return f"- `{check.name}`{'*' if check.needs_entities else ''} ({check.severity}): {check.meaning}"
