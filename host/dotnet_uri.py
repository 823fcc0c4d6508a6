"""
System.Uri.AbsoluteUri of Azure's host, as far as senders of `com.microsoft:uri` need it.

Measured: http and https with spaces and non-ASCII text, a rooted path, relative and empty text. Assumed: lower case for
scheme and host, default ports, dot segments and other schemes, according to RFC 3986 and the documentation of
System.Uri.
"""

import re
from urllib.parse import quote

_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)
_AUTHORITY = re.compile(r"([^/?#]*)(.*)", re.DOTALL)
_PORTS = {"http": ":80", "https": ":443", "ftp": ":21", "ws": ":80", "wss": ":443"}
_KEPT = "!#$&'()*+,/:;=?@[]~%"
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


def absolute_uri(text: str) -> str | None:
    """Return the absolute URI of a text, None where .NET throws UriFormatException."""
    text = text.strip()
    if text.startswith("/"):
        return "file://" + _escaped(text if not text.startswith("//") else text[2:])
    found = _ABSOLUTE.fullmatch(text)
    if found is None:
        return None
    scheme, slashes, rest = found[1].lower(), found[2] or "", found[3]
    if not slashes:
        return None if scheme in _PORTS else f"{scheme}:{_escaped(rest)}"
    found = _AUTHORITY.fullmatch(rest)
    authority, path = (found[1], found[2]) if found else ("", "")
    if not authority and scheme in _PORTS:
        return None
    user, at, host = authority.rpartition("@")
    host = host.lower().removesuffix(_PORTS.get(scheme, ":"))
    if not path.startswith("/"):
        path = "/" + path
    return f"{scheme}://{_escaped(user)}{at}{_escaped(host)}{_escaped(_without_dots(path))}"


def _escaped(text: str) -> str:
    return quote(_BARE_PERCENT.sub("%25", text), safe=_KEPT)


def _without_dots(path: str) -> str:
    """Return the path without its segments `.` and `..`."""
    end = min((at for at in (path.find("?"), path.find("#")) if at >= 0), default=len(path))
    segments = path[:end].split("/")
    if not {".", ".."} & set(segments):
        return path
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            kept = kept[:-1] if len(kept) > 1 else kept
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept) + path[end:]
