"""Two namespaces with their administration, empty at first, and tasks that need entities there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site import Site

ROOT = Path(__file__).parents[2]
TASKS = (ROOT / "config/examples/all-active/tasks/all-active.yaml").read_text(encoding="utf-8")
TOPOLOGY = """
west: {topics: {orders: {subscriptions: {application: {sessions: true, max_delivery_count: 20}}}}}
east: {topics: {orders: {subscriptions: {application: {sessions: true, max_delivery_count: 20}}}}}
"""
SITES = ("west", "east")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    with Site(tmp_path, "{west: , east: }", TASKS, has_admin=True) as site:
        yield site
