"""
Which HTTP requests come from this machine's own programs and pages, and not from a web page of somebody else.

A page may make a browser send requests to this machine. Then `Origin` is the address of the page, or, after DNS
rebinding, `Host` is a name of the page's owner.
"""

import ipaddress
from urllib.parse import urlsplit

from aiohttp import web


def is_own_host(request: web.BaseRequest) -> bool:
    """Return whether a request names this machine by localhost or by an address."""
    host = request.host.rpartition(":")[0] if not request.host.endswith("]") else request.host
    host = (host or request.host).strip("[]").lower()
    return host == "localhost" or _is_address(host)


def is_same_origin(request: web.BaseRequest) -> bool:
    """Return whether a request comes from a program, or from a page of the port that it is sent to."""
    origin = request.headers.get("Origin")
    # A browser writes nothing that has to be parsed further.
    return origin is None or origin.partition("://")[2] == request.host


def is_own_origin(request: web.BaseRequest) -> bool:
    """Return whether a request comes from a program, or from a page of this machine."""
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    try:
        return is_loopback(urlsplit(origin).hostname or "")
    except ValueError:
        return False


def is_from_elsewhere(request: web.BaseRequest) -> bool:
    """Return whether a page of another machine has sent a request, or a name of its owner leads to this machine."""
    # A browser sends no Origin with requests for images and scripts.
    is_by_page = request.headers.get("Sec-Fetch-Site") == "cross-site"
    is_followed_link = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    return not is_own_host(request) or not is_own_origin(request) or (is_by_page and not is_followed_link)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine as only its own programs see it."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
