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

    def open(self, page: Path, *, width: int, dark: bool = False) -> Self:
        """Show *page* on a screen of *width* CSS pixels, a phone's if it is narrow."""
        is_phone = width < 500
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=is_phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.as_uri())
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
            tab = Tab(next(each["webSocketDebuggerUrl"] for each in tabs if each["type"] == "page"))
            try:
                yield tab
            finally:
                tab.close()
        finally:
            browser.terminate()
            browser.communicate(timeout=60)
