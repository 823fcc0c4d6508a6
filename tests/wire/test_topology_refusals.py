"""What `busway plan` and `apply` say about answers of Azure, which a proxy in front of the broker gives as recorded."""

import contextlib
import http.client
import threading
from collections.abc import Iterator
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cli.topology import application
from cli.topology.model import Kind, Name
from tests.site import Site

pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")

TASK = """
task: copy
source: {connection: west, topic: orders, subscription: replication, rule: {filter: "replication IS NULL"}}
routes: [{target: {connection: west, queue: copies}}]
"""
# As the service answers; the tracking numbers are made up.
TRACKING = (
    "TrackingId:6a2cf9e4-01f2-4bb4-9a3a-7d3a3f1b9f0d_G5, SystemTracker:NoSystemTracker, Timestamp:2026-01-01T00:00:00"
)
ANSWERS = {
    401: "401 Unauthorized: Manage,EntityRead claims required for this operation.",
    403: "SubCode=40300. The maximum number of resources of type Queue has been reached. Actual: 50, Max allowed: 50.",
    40111: "SubCode=40111. Ip has been prevented to connect to the endpoint.",
    404: "404 Not Found: No service is hosted at the specified address.",
    409: "SubCode=40901. Another conflicting operation is in progress.",
    40900: "SubCode=40900. Conflict: the entity already exists.",
    40301: "SubCode=40301. The entity is not active.",
    40501: "SubCode=40501. Number of SQL filters exceeded.",
    400: "SubCode=40000. The value for the DuplicateDetectionHistoryTimeWindow property is out of range.",
    402: "SubCode=40200. The number of topics has reached the limit of the namespace.",
}


class Proxy:
    """Passes requests to the broker's administration, except those that *refused* names."""

    def __init__(self, address: str) -> None:
        self.target = urlsplit(address).netloc
        self.refused: dict[tuple[str, str], int] = {}
        self.times = 1000
        """How often they are refused."""
        self.seen: list[tuple[str, str]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                path = urlsplit(self.path).path.strip("/")
                proxy.seen.append((self.command, path))
                status = proxy.refused.get((self.command, path))
                if status is not None and proxy.seen.count((self.command, path)) <= proxy.times:
                    status_of = status if status < 1000 else status // 100
                    text = (
                        f"<Error><Code>{status_of}</Code><Detail>{ANSWERS[status]} {TRACKING}</Detail></Error>".encode()
                    )
                    self.reply(status_of, "application/xml; charset=utf-8", text)
                    return
                connection = http.client.HTTPConnection(proxy.target)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                self.reply(answer.status, answer.headers["Content-Type"] or "text/plain", answer.read())
                connection.close()

            def reply(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_DELETE = answer  # noqa: N815 - names of the base class

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class ProxySite(Site):
    """A configuration with one namespace behind a proxy."""

    @cached_property
    def proxy(self) -> Proxy:
        found = Proxy(self.settings["WEST__administration"])
        self.settings["WEST__administration"] = found.address
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ProxySite]:
    with ProxySite(tmp_path, "west: ", TASK, has_admin=True) as site, contextlib.closing(site.proxy):
        yield site


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, ["does not know this key or identity", "EntityRead claims required", "Azure Service Bus Data Owner"]),
        (403, ["has as many as its quota allows", "number of resources", "another tier"]),
        (40111, ["is closed by its firewall", "Ip has been prevented", "admit this address"]),
        (404, ["does not exist", "No service is hosted", "check the name"]),
    ],
)
def test_a_namespace_that_refuses_to_be_read_is_named_with_the_remedy(
    site: ProxySite, status: int, expected: list[str]
) -> None:
    site.proxy.refused["GET", "$Resources/queues"] = status
    for command in (("plan",), ("apply", "--yes")):
        result = site.run(*command)
        assert result.exit_code == 1
        assert result.output.startswith("No namespace could be read.\n")
        assert [each for each in expected if each not in result.output] == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, ["does not know this key or identity", "EntityRead claims required", "the right Manage"]),
        (400, ["is refused", "DuplicateDetectionHistoryTimeWindow property is out of range", "topology.yaml"]),
        (402, ["answered 402", "reached the limit of the namespace", "the quota or the tier"]),
        (40900, ["already exists", "run the command again"]),
        (40301, ["does not allow this now", "run the command again"]),
        (40501, ["has as many SQL filters as a topic may have", "use correlation filters"]),
    ],
)
def test_a_refused_step_is_named_with_the_remedy_and_the_others_are_taken(
    site: ProxySite, status: int, expected: list[str]
) -> None:
    site.proxy.refused["PUT", "orders"] = status
    result = site.run("apply", "--yes")
    assert result.exit_code == 1
    assert "done   west: create queue copies" in result.output
    assert "failed west: create topic orders: west topic orders: " in result.output
    assert "west: create subscription orders/replication: skipped, because it needs topic orders" in result.output
    assert [each for each in expected if each not in result.output] == []
    assert "1 step taken, 1 failed, 1 skipped." in result.output

    site.proxy.refused.clear()
    rest = site.run("apply", "--yes")
    # Nobody subscribes to the topic but the task, which is enough for it not to be warned about.
    assert (rest.exit_code, "2 steps taken. Every entity is as the tasks need it." in rest.output) == (0, True)


def test_a_subscription_whose_rule_is_refused_is_not_left_with_the_default_rule(site: ProxySite) -> None:
    """The rule is part of the request that creates the subscription: both exist, or neither."""
    site.proxy.refused["PUT", "orders/subscriptions/replication"] = 400
    assert site.run("apply", "--yes").exit_code == 1
    site.proxy.refused.clear()
    planned = site.run("plan")
    assert "+ create subscription orders/replication" in planned.output
    assert "only rule: replication IS NULL" in planned.output


@pytest.mark.parametrize(("times", "is_done"), [(1, True), (4, True), (5, False)])
def test_a_change_that_somebody_else_has_in_progress_is_tried_again(
    site: ProxySite, monkeypatch: pytest.MonkeyPatch, times: int, is_done: bool
) -> None:
    monkeypatch.setattr(application, "_PAUSE_SECONDS", 0.01)
    site.proxy.refused["PUT", "orders"], site.proxy.times = 409, times
    result = site.run("apply", "--yes")
    assert ("done   west: create topic orders" in result.output) == is_done
    assert ("is being changed by someone else" in result.output) != is_done


def test_apply_says_what_an_update_interrupts_and_makes_none_without_a_change(site: ProxySite) -> None:
    site.run("apply", "--yes")
    found = site.administrator("west").get_subscription("orders", "replication")
    found.max_delivery_count = 3
    site.administrator("west").update_subscription("orders", found)
    planned = site.run("plan")
    assert "~ change subscription orders/replication" in planned.output
    assert "ends the links of all its senders and receivers" in planned.output
    site.proxy.seen.clear()
    site.run("apply", "--yes")
    site.run("apply", "--yes")
    assert [path for method, path in site.proxy.seen if method == "PUT"] == ["orders/subscriptions/replication"]


def test_an_entity_that_someone_else_has_changed_meanwhile_is_not_updated_again(site: ProxySite) -> None:
    site.run("apply", "--yes")
    site.proxy.seen.clear()
    settings = {
        "max_delivery_count": site.administrator("west").get_subscription("orders", "replication").max_delivery_count
    }
    application._update(site.administrator("west"), Name(Kind.SUBSCRIPTION, ("orders", "replication")), settings)
    assert "PUT" not in [method for method, _ in site.proxy.seen]
