"""A webhook with broken senders keeps serving the others."""

import pytest
import yaml

from shared.ends.event_grid.output import scope_of
from shared.tasks.models import TaskFile

TASK = """
task: grid-to-orders
source: {connection: grid, webhook: orders}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: east, queue: orders-rejected}
"""
OF_QUEUE = TASK.replace("{connection: grid, webhook: orders}", "{connection: west, queue: orders}")


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (TASK, None),
        (f"{TASK}limits: {{hold: PT1M}}", None),
        (f"{TASK}limits: {{rejects_in_a_row: 7}}", 7),
        (OF_QUEUE, 100),
        (f"{OF_QUEUE}limits: {{rejects_in_a_row: off}}", None),
    ],
)
def test_a_webhook_has_no_limit_on_rejected_events_by_default(text: str, most: int | None) -> None:
    assert TaskFile.model_validate(yaml.safe_load(text)).most_rejects_in_a_row == most


@pytest.mark.parametrize(
    ("url", "cloud"),
    [
        ("https://t.westeurope-1.eventgrid.azure.net/api/events", "eventgrid.azure.net"),
        ("https://n.usgovvirginia-1.EventGrid.azure.us", "eventgrid.azure.us"),
        ("https://t.chinaeast2-1.eventgrid.azure.cn/api/events", "eventgrid.azure.cn"),
        ("https://events.example.com", "eventgrid.azure.net"),
        ("https://eventgrid.azure.us.example.com", "eventgrid.azure.net"),
    ],
)
def test_tokens_are_those_of_the_cloud_of_the_topic(url: str, cloud: str) -> None:
    assert scope_of(url) == f"https://{cloud}/.default"
