"""The dashboard: one page with its style and scripts inside, which loads nothing from elsewhere."""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent
# Each uses the names of those before it; the last one begins to read.
_SCRIPTS = ("elements.js", "trace.js", "dead.js", "status.js")


class Page(NamedTuple):
    """The page, and the policy that lets a browser run this style and script and no other."""

    content: bytes
    policy: str


@cache
def page() -> Page:
    """Return the page."""
    style, *parts = (_FOLDER.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", *_SCRIPTS))
    script = "\n".join(["'use strict';", "(() => {", *parts, "})();"])
    text = _FOLDER.joinpath("page.html").read_text(encoding="utf-8")
    text = text.replace("<style></style>", f"<style>{style}</style>")
    text = text.replace("<script></script>", f"<script>{script}</script>")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; connect-src 'self'; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(text.encode(), policy)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
