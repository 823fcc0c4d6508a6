"""The administration in a browser."""

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from broker.tests.admin_requests import AdminRequests
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import (
    HubConfig,
    NamespaceConfig,
    QueueConfig,
    SharedAccessKey,
    SubscriptionConfig,
    TopicConfig,
)
from busway_broker.thread import RunningBroker
from tests.browser import CONTRAST, CUT, Tab, running_browser

KEY = SharedAccessKey(name="RootManageSharedAccessKey", key="c2VjcmV0")
OPEN = NamespaceConfig(
    name="open",
    queues=(QueueConfig(name="orders"),),
    topics=(TopicConfig(name="prices", subscriptions=(SubscriptionConfig(name="eu"),)),),
    hubs=(HubConfig(name="telemetry", partition_count=2),),
)
KEYED = NamespaceConfig(name="keyed", queues=(QueueConfig(name="orders"),), shared_access_keys=(KEY,))
NAMESPACES = (OPEN, KEYED)
HOSTILE = "</td><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with running_browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def send(admin: RunningAdmin, message: object) -> None:
    assert AdminRequests(admin.address("open")).json("POST", "messages?path=orders", message) == (201, {})


def wait_for(tab: Tab, expression: str) -> None:
    tab.evaluate(
        f"new Promise((done, fail) => {{ const end = Date.now() + 10000; (function look() {{ if ({expression}) done(); "
        "else if (Date.now() > end) fail(new Error(document.body.innerText)); else setTimeout(look, 20); })(); })"
    )


def test_the_page_shows_and_sends_messages(broker: RunningBroker, admin: RunningAdmin, tab: Tab) -> None:
    send(admin, {"body": HOSTILE, "subject": HOSTILE})
    tab.open(f"{admin.address('open')}/", width=1000)
    wait_for(tab, "document.body.innerText.includes('orders')")
    tab.evaluate("[...document.querySelectorAll('button')].find(each => each.textContent === 'orders').click()")
    wait_for(tab, "document.querySelector('#messages').innerText.includes('onerror')")
    tab.evaluate(
        "document.querySelector('#body').value = 'from the page';"
        "document.querySelector('#application_properties').value = '{\"priority\": 5}';"
        "document.querySelector('#send button').click()"
    )
    wait_for(tab, "document.querySelector('#messages').innerText.includes('from the page')")
    assert tab.evaluate("document.title") == "busway-broker"
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    assert broker.counts("open")["orders"].active == 2
    for width, dark in ((360, False), (1000, True)):
        tab.open(f"{admin.address('open')}/", width=width, dark=dark)
        wait_for(tab, "document.body.innerText.includes('orders')")
        assert tab.evaluate(CUT.replace("WIDTH", str(width))) == []
        assert tab.evaluate(CONTRAST)[0] >= 4.5


def test_a_mistake_stays_on_the_screen_until_the_next_attempt(
    admin: RunningAdmin, broker: RunningBroker, tab: Tab
) -> None:
    assert broker.port("open")
    tab.open(f"{admin.address('open')}/", width=360)
    wait_for(tab, "document.body.innerText.includes('orders')")
    tab.evaluate("[...document.querySelectorAll('button')].find(each => each.textContent === 'orders').click()")
    wait_for(tab, "!document.querySelector('#details').hidden && scrollY > 0")
    tab.evaluate(
        "document.querySelector('#application_properties').value = '{'; document.querySelector('#send button').click()"
    )
    problem = "document.querySelector('#problem')"
    wait_for(tab, f"{problem}.textContent.startsWith('application properties: ')")
    tab.evaluate("attempt(refresh)")
    assert tab.evaluate(f"{problem}.textContent.length") > 0
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert 0 <= tab.evaluate(f"{problem}.getBoundingClientRect().top") < 800
    tab.evaluate(
        "document.querySelector('#application_properties').value = ''; document.querySelector('#send button').click()"
    )
    wait_for(tab, f"{problem}.textContent === ''")


def test_a_phone_shows_the_whole_of_a_message(admin: RunningAdmin, broker: RunningBroker, tab: Tab) -> None:
    AdminRequests(admin.address("open")).json(
        "POST", "messages?path=orders", {"body": "x" * 300, "application_properties": {"priority": 5}}
    )
    assert broker.counts("open")["orders"].active == 1
    tab.open(f"{admin.address('open')}/", width=360)
    wait_for(tab, "document.body.innerText.includes('orders')")
    tab.evaluate("[...document.querySelectorAll('button')].find(each => each.textContent === 'orders').click()")
    wait_for(tab, "document.querySelector('#messages').innerText.includes('xxx')")
    cells = "[...document.querySelectorAll('td')]"
    assert tab.evaluate(f"{cells}.filter(each => each.getBoundingClientRect().right > 361).length") == 0
    assert tab.evaluate(f"{cells}.map(each => each.dataset.name).includes('body')")


def test_the_page_asks_for_a_key_and_signs_with_it(broker: RunningBroker, admin: RunningAdmin, tab: Tab) -> None:
    assert broker.port("keyed")
    tab.open(f"{admin.address('keyed')}/", width=1000)
    wait_for(tab, "!document.querySelector('#key').hidden")
    assert "orders" not in tab.evaluate("document.body.innerText")
    tab.evaluate(
        "document.querySelector('#key-value').value = 'd3Jvbmc='; document.querySelector('#key button').click()"
    )
    wait_for(tab, "document.querySelector('#problem').textContent.startsWith('the key is refused')")
    tab.evaluate(
        "document.querySelector('#key-value').value = 'c2VjcmV0'; document.querySelector('#key button').click()"
    )
    wait_for(tab, "document.body.innerText.includes('orders')")


def test_the_page_loads_nothing_from_elsewhere(admin: RunningAdmin) -> None:
    with urlopen(f"{admin.address('open')}/", timeout=60) as answer:  # noqa: S310 - the broker's own address
        policy, text = answer.headers["Content-Security-Policy"], answer.read().decode()
    assert "default-src 'none'" in policy
    assert "NONCE" not in text
    assert "http" not in text
    assert len(text) < 16_000


def test_the_file_is_in_the_wheel() -> None:
    configuration = Path(__file__).parents[2] / "broker/pyproject.toml"
    assert '"admin/page.html"' in configuration.read_text(encoding="utf-8")
