"""The dashboard in a browser: what an operator sees on a phone and on a desktop, and what hostile names cannot do."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from msgspec import Struct

from functions.dashboard import page
from shared.resend.model import ResendStep
from tests.browser import CONTRAST, CUT, Tab, running_browser
from tests.sample_dead_letters import (
    BODY,
    ENTITY,
    EXPIRED,
    STEPS,
    sample_letter,
    sample_letters,
    sample_report,
    sample_trace,
)
from tests.sample_status import HOSTILE, sample_history, sample_status

pytestmark = pytest.mark.long

WIDTHS = (360, 1280)
KEY = "a-function-key"
WRITE_KEY = "a-key-that-resends"
READY = "document.querySelector('#rows tr') !== null"
HELD = "[...document.querySelectorAll('#rows button')].find(each => each.textContent.startsWith('payments'))"


class App(ThreadingHTTPServer):
    """An app that serves the page with its policy, and a status of a chosen size."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.idle = 3
        self.busy = 0
        self.may_resend = True
        self.has_bodies = True
        self.orders: list[tuple[str | None, dict[str, Any]]] = []
        self.steps: list[ResendStep] = list(STEPS)
        self.page = "https://account.blob.core.windows.net/reconciliation/report.html"
        self.is_failing = False
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api/status?code={KEY}"


class _Handler(BaseHTTPRequestHandler):
    server: App

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        status = sample_status(self.server.idle, self.server.busy, page=self.server.page)
        if path == "/api/status":
            self._answer(page().content, "text/html; charset=utf-8")
            return
        self.server.keys.append(self.headers["x-functions-key"])
        contents: dict[str, Callable[[], Struct]] = {
            "json": lambda: status,
            "history": lambda: sample_history(status),
            "dead": lambda: sample_report(may_resend=self.server.may_resend),
            "letters": sample_letters,
            "letter": lambda: sample_letter(has_body=self.server.has_bodies),
            "trace": sample_trace,
        }
        content = msgspec.json.encode(contents[path.rpartition("/")[2]]())
        self._answer(content, "application/json", 503 if self.server.is_failing else 200)

    def do_POST(self) -> None:
        assert urlsplit(self.path).path == "/api/resend"
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.orders.append((self.headers["x-functions-key"], order))
        if self.headers["x-functions-key"] != WRITE_KEY:
            self._answer(b"", "text/plain", 401)
            return
        self._answer(msgspec.json.encode(self.server.steps.pop(0)), "application/json")

    def _answer(self, content: bytes, kind: str, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", page().policy)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with running_browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture
def app() -> Iterator[App]:
    with App() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


def until(tab: Tab, condition: str) -> None:
    assert tab.evaluate(f"""new Promise(done => {{
      const end = Date.now() + 20000;
      const look = () => {condition} ? done(true) : Date.now() > end ? done(false) : setTimeout(look, 20);
      look();
    }})"""), condition


def shown(tab: Tab, app: App, *, width: int = 1280, dark: bool = False, details: bool = True) -> None:
    tab.open(app.url, width=width, dark=dark)
    until(tab, READY)
    if details:
        tab.evaluate(f"{HELD}.click()")
        until(tab, "document.querySelectorAll('.chart').length === 2")


def shown_dead(tab: Tab, app: App, *, width: int = 1280, dark: bool = False) -> None:
    """Show the dead letters, the messages of a group and one of them with its history."""
    shown(tab, app, width=width, dark=dark, details=False)
    tab.evaluate("document.getElementById('dead-read').click()")
    until(tab, "document.querySelectorAll('.groups').length === 2")
    tab.evaluate("document.querySelector('.groups .actions button').click()")
    until(tab, "document.querySelectorAll('.letters tbody tr').length === 12")
    tab.evaluate("document.querySelector('.letters .n button').click()")
    until(tab, "document.querySelectorAll('.history .hops > li').length === 2")


@pytest.mark.parametrize("show", [shown, shown_dead])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_at_the_right(tab: Tab, app: App, width: int, show: Callable[..., None]) -> None:
    show(tab, app, width=width)
    assert tab.evaluate(CUT.replace("WIDTH", str(width))) == []
    assert tab.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [width, width]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("show", [shown, shown_dead])
def test_all_text_can_be_read(tab: Tab, app: App, width: int, dark: bool, show: Callable[..., None]) -> None:
    show(tab, app, width=width, dark=dark)
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)")
    contrast, where = tab.evaluate(CONTRAST)
    assert contrast >= 4.5, where


@pytest.mark.parametrize("width", WIDTHS)
def test_the_map_fits_the_screen_and_has_the_sites_as_the_configuration_names_them(
    tab: Tab, app: App, width: int
) -> None:
    shown(tab, app, width=width, details=False)
    assert tab.evaluate("document.querySelector('#map').scrollWidth") <= width
    boxes = tab.evaluate("""[...document.querySelectorAll('#map text')].map(each => each.getBoundingClientRect())
      .flatMap(each => [each.left, each.right])""")
    assert min(boxes) >= 0
    assert max(boxes) <= width
    texts = tab.evaluate("[...document.querySelectorAll('#map rect + text')].map(each => each.textContent)")
    assert texts == ["west", "east", "north"]


def test_a_held_task_says_what_to_do(tab: Tab, app: App) -> None:
    shown(tab, app, details=False)
    visible = tab.evaluate("[...document.querySelectorAll('.why:not([hidden])')].map(each => each.innerText)")
    assert len(visible) == 1
    assert visible[0].endswith(". What to do: set the entity to Active; batches then go on.")
    tab.evaluate(f"{HELD}.click()")
    until(tab, "document.querySelector('.remedy')")
    assert tab.evaluate("document.querySelector('.remedy').textContent") == (
        "What to do: set the entity to Active; batches then go on."
    )


def test_a_hostile_name_is_only_text(tab: Tab, app: App) -> None:
    app.page = "javascript:window.hacked = 1"
    shown(tab, app)
    assert tab.evaluate("typeof window.hacked") == "undefined"
    assert tab.evaluate("document.querySelectorAll('img, [onload], [onerror], a[href^=javascript]').length") == 0
    assert tab.evaluate("document.querySelectorAll('script').length") == 1
    assert tab.evaluate("[...document.querySelectorAll('.detail .id')].map(each => each.textContent)") == list(HOSTILE)
    assert HOSTILE[0] in tab.evaluate("document.getElementById('instances').textContent")
    results = tab.evaluate("[...document.querySelectorAll('#reconciliation li')].map(each => each.textContent)")
    assert results[0].startswith("2026-11-22: findings. 2 messages are missing")
    assert results[1].startswith("Hour 2026-11-23, 09:00 UTC: clean. 412 messages")


def test_the_page_may_run_no_other_script_and_load_nothing_from_elsewhere(tab: Tab, app: App) -> None:
    shown(tab, app)
    tab.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hacked = 1'}))")
    tab.evaluate("document.body.setAttribute('onclick', 'window.hacked = 1'); document.body.click()")
    assert tab.evaluate("typeof window.hacked") == "undefined"
    assert tab.evaluate("fetch('https://example.com').then(() => 'sent', () => 'refused')") == "refused"
    assert "unsafe" not in page().policy


def test_the_function_key_of_the_address_is_sent_with_each_request(tab: Tab, app: App) -> None:
    shown(tab, app)
    assert set(app.keys) == {KEY}


def test_the_verdict_comes_first_and_what_needs_attention_leads_the_table(tab: Tab, app: App) -> None:
    shown(tab, app, details=False)
    assert tab.evaluate("document.querySelector('h1').textContent").startswith("1 of 8 tasks needs attention")
    rows = "[...document.querySelectorAll('#rows tr:not(.detail)')]"
    states = tab.evaluate(f"{rows}.map(each => each.querySelector('.state').textContent)")
    assert states == ["held", "unknown", "paused", "running", "running", "idle", "idle", "idle"]
    unknown = tab.evaluate(f"{rows}[1].innerText.split(/\\s+/)")
    assert unknown[:5] == ["telemetry-north-to-east", "unknown", "?", "?", "?"]


def test_a_hundred_idle_tasks_are_one_button(tab: Tab, app: App) -> None:
    app.idle = 100
    shown(tab, app, details=False)
    count = "document.querySelectorAll('#rows tr:not(.detail)').length"
    assert tab.evaluate(count) == 5
    assert tab.evaluate("document.getElementById('quiet').textContent") == "Show 100 more tasks with nothing to report"
    tab.evaluate("document.getElementById('quiet').click()")
    assert tab.evaluate(count) == 105
    tab.evaluate(
        "const find = document.getElementById('find'); find.value = 'PLANT-042'; find.dispatchEvent(new Event('input'))"
    )
    assert tab.evaluate(count) == 1
    assert tab.evaluate("document.getElementById('shown').textContent") == "1 of 105 tasks"


def test_everything_can_be_reached_with_the_keyboard(tab: Tab, app: App) -> None:
    shown(tab, app, details=False)
    edge = "document.querySelector('#map g.is-held')"
    assert "west to east: 5 tasks" in tab.evaluate(f"{edge}.getAttribute('aria-label')")
    tab.evaluate(f"{edge}.focus(); {edge}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter', bubbles: true}}))")
    assert tab.evaluate("document.getElementById('shown').textContent") == "5 of 8 tasks, west to east"
    assert tab.evaluate("document.activeElement.dataset.pair") == '["west","east"]'
    assert tab.evaluate(f"{HELD}.getAttribute('aria-expanded')") == "false"
    tab.evaluate(f"{HELD}.focus(); {HELD}.click()")
    assert tab.evaluate(f"{HELD}.getAttribute('aria-expanded')") == "true"
    assert tab.evaluate(f"document.activeElement === {HELD}") is True
    unnamed = """[...document.querySelectorAll('button, input, select, svg[role=img]')]
      .filter(each => !each.hidden && !each.textContent && !each.labels?.length && !each.ariaLabel).length"""
    assert tab.evaluate(unnamed) == 0


def test_an_app_that_does_not_answer_is_reported_beside_what_is_known(tab: Tab, app: App) -> None:
    shown(tab, app, details=False)
    app.is_failing = True
    until(tab, "document.querySelector('h1').textContent === 'The status cannot be read: the app answers 503.'")
    assert "old" in tab.evaluate("document.getElementById('updated').textContent")
    assert tab.evaluate("document.querySelectorAll('#rows tr').length") > 0


def test_losses_are_drawn_and_a_task_with_some_leads(tab: Tab, app: App) -> None:
    shown(tab, app)
    assert tab.evaluate("document.querySelectorAll('.chart .lost').length") == 2
    first = "document.querySelector('#rows tr').querySelector('[data-label=\"Lost (1 d)\"]').textContent"
    assert tab.evaluate(first) == "4"
    assert "sequence number 21 to 23: enqueued between 2026-11-23T09:28:00Z" in tab.evaluate(
        "document.querySelector('.detail:not(.why)').textContent"
    )


def test_of_a_hundred_busy_tasks_the_first_are_shown(tab: Tab, app: App) -> None:
    app.busy = 100
    shown(tab, app, details=False)
    count = "document.querySelectorAll('#rows tr:not(.detail)').length"
    assert tab.evaluate(count) == 21
    assert tab.evaluate("document.getElementById('quiet').textContent") == "Show 87 more tasks with nothing to report"
    tab.evaluate("document.getElementById('quiet').click()")
    assert tab.evaluate(count) == 108


def test_dead_letters_are_grouped_and_one_has_its_properties_body_and_history(tab: Tab, app: App) -> None:
    shown_dead(tab, app)
    note = "document.getElementById('dead-note').textContent"
    assert tab.evaluate(note).startswith("5,009 messages in 2 of 4 queues, 1 empty, as of 10:30:00 UTC.")
    # The largest first.
    assert tab.evaluate("document.querySelector('#dead h3').textContent") == f"{ENTITY}: 5,006"
    row = "document.querySelector('.groups tbody tr').innerText.split(/\\s+/).join(' ')"
    assert tab.evaluate(row).startswith(f"MaxDeliveryCountExceeded {EXPIRED.source} 5,000 40 s to 1.1 d Show Resend …")
    assert tab.evaluate("document.querySelector('.letters pre').textContent") == BODY
    fields = "[...document.querySelectorAll('.fields tbody tr')].map(each => each.innerText.split(/\\t|\\n/))"
    assert tab.evaluate(fields)[1] == ["property amount", "decimal128", "12.50"]
    assert tab.evaluate("document.querySelectorAll('.history .is-rejected').length") == 1
    assert tab.evaluate("typeof window.hacked") == "undefined"
    # What turns the direction of text is shown as its code.
    assert "\\u{202e}account-17" in tab.evaluate("document.querySelector('.letters').textContent")
    app.has_bodies = False
    tab.evaluate("document.querySelectorAll('.letters .n button')[1].click()")
    until(tab, "document.getElementById('dead').textContent.includes('BUSWAY_DASHBOARD_BODIES is not on')")


def test_a_message_is_traced_by_its_id(tab: Tab, app: App) -> None:
    shown(tab, app, details=False)
    tab.evaluate("document.getElementById('trace-id').value = 'payment-17'")
    tab.evaluate("document.querySelector('#trace-form button').click()")
    until(tab, "document.querySelectorAll('#trace .hops > li').length === 2")
    assert ": 2 hops, the last one in payments-east-to-north: rejected" in tab.evaluate(
        "document.querySelector('#trace p').textContent"
    )
    steps = (
        "[...document.querySelectorAll('#trace .steps tbody tr')].map(each => each.innerText.split('\\t').slice(0, 3))"
    )
    assert tab.evaluate(steps)[1] == ["+93 ms", "task payments-west-to-east", "sent"]


def test_a_group_is_resent_in_steps_after_a_confirmation_with_a_key_of_its_own(tab: Tab, app: App) -> None:
    shown_dead(tab, app)
    tab.evaluate("document.querySelectorAll('.groups .actions button')[1].click()")
    assert tab.evaluate("document.getElementById('resend').open") is True
    assert tab.evaluate("document.activeElement.id") == "resend-stop"
    assert tab.evaluate("document.getElementById('resend-go').textContent") == "Resend 5,000 messages"
    assert app.orders == []
    done = "document.getElementById('resend-done').textContent"
    tab.evaluate("document.getElementById('resend-go').click()")
    until(tab, f"{done}.includes('Enter the key of the function busway-resend')")
    tab.evaluate(f"document.getElementById('resend-key').value = '{WRITE_KEY}'")
    tab.evaluate("document.getElementById('resend-go').click()")
    until(tab, f"{done}.includes('4,998 resent. Some are left:')")
    assert "2: the target refuses it: too large" in tab.evaluate(done)
    order = {
        "entity": ENTITY,
        "group": {"reason": EXPIRED.reason, "source": EXPIRED.source, "task": None},
        "to": None,
        "ids": "keep",
        "unclear": "leave",
    }
    assert app.orders == [(KEY, order), (WRITE_KEY, order), (WRITE_KEY, order)]
    tab.evaluate("document.getElementById('resend-stop').click()")
    assert tab.evaluate("document.getElementById('resend').open") is False


def test_without_the_setting_there_is_no_button_that_resends(tab: Tab, app: App) -> None:
    app.may_resend = False
    shown_dead(tab, app)
    assert (
        tab.evaluate("[...document.querySelectorAll('.actions button')].map(each => each.textContent)") == ["Show"] * 8
    )
    assert tab.evaluate("document.getElementById('dead-note').textContent").endswith("Read-only.")


def test_the_page_is_small_and_names_no_other_address() -> None:
    text = page().content.decode().replace("http://www.w3.org/2000/svg", "")
    assert len(text) < 60_000
    assert "://" not in text.replace("^https?:\\/\\/", "")
