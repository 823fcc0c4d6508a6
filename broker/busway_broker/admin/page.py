"""
The page that shows a namespace in a browser: one file, which uses the JSON API.

Its policy lets it load nothing, run its own script only, and send requests to its own server only.
"""

import secrets
from pathlib import Path

from aiohttp import web

_FILE = Path(__file__).with_name("page.html")


def response() -> web.Response:
    """Return the page."""
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    text = _FILE.read_text(encoding="utf-8").replace("NONCE", nonce)
    return web.Response(text=text, content_type="text/html", headers=headers)
