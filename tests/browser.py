"""Chromium without a window, driven through its DevTools protocol."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import pytest
import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LISTENS = re.compile(r"DevTools listening on ws://([^/\s]+)/")

# Elements that end to the right of the screen, outside a box that scrolls; those of one pixel are for screen readers.
CUT = """[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll')
  && each.getBoundingClientRect().width > 1 && each.getBoundingClientRect().right > WIDTH + 1)
  .map(each => each.outerHTML.slice(0, 80))"""
# The least contrast of text and background, as WCAG 2 defines it, of the elements that have text of their own.
CONTRAST = """(() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => numbers(color).slice(0, 3).map(each => each / 255)
    .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = each => {
    const color = getComputedStyle(each).backgroundColor;
    return numbers(color)[3] === 0 ? (each.parentElement ? behind(each.parentElement) : 'rgb(255, 255, 255)') : color;
  };
  const contrast = each => {
    const [one, other] = [light(getComputedStyle(each).color), light(behind(each))];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  };
  return [...document.querySelectorAll('body *')]
    .filter(each => [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
    .filter(each => !each.closest('svg')).map(each => [contrast(each), each.outerHTML.slice(0, 80)])
    .sort((one, other) => one[0] - other[0])[0];
})()"""


class Tab:
    """One tab of the browser."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=60)
        self._calls = 0
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a *method* of the protocol; return its result."""
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._calls:
            pass
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, page: Path | str, *, width: int, dark: bool = False) -> Self:
        """Show *page*, a file or a URL, on a screen of *width* CSS pixels, a phone's if it is narrow."""
        is_phone = width < 500
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=is_phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        self.evaluate("document.readyState === 'complete' || new Promise(done => addEventListener('load', done))")
        return self

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript *expression* in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def close(self) -> None:
        self._socket.close()


@contextmanager
def running_browser(profile: Path) -> Iterator[Tab]:
    """Run the browser until the context ends; give its tab."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs Chromium or Chrome")
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        "--remote-debugging-port=0",
    ]
    options += ["--remote-allow-origins=*", f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen([found, *options], stderr=subprocess.PIPE, text=True) as browser:  # noqa: S603 - the system's browser
        assert browser.stderr is not None
        try:
            listens = next(filter(None, map(_LISTENS.search, browser.stderr)), None)
            assert listens is not None, "the browser ended before it listened"
            with urlopen(f"http://{listens[1]}/json/list", timeout=60) as answer:
                tabs = json.load(answer)
            tab = Tab(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
            try:
                yield tab
            finally:
                tab.close()
        finally:
            browser.terminate()
            browser.communicate(timeout=60)
