"""The functions of the app that the dashboard calls, called as the host calls them."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import azure.functions as func

from functions.status import register_status
from shared.tasks.files import load
from tests.end_to_end.dead_letter_site import DeadLetterSite

ORDERS = "west/orders/$DeadLetterQueue"
BROKEN = {"reason": "Broken", "source": "west/orders", "task": None}


@dataclass
class Answer:
    code: int
    content: Any


class Dashboard:
    """The functions of an app with the configuration of a site."""

    def __init__(self, site: DeadLetterSite, storage: str, **settings: str) -> None:
        app = func.FunctionApp()
        self.settings = {**site.settings, "AzureWebJobsStorage": storage, **settings}
        self.configuration = load(site.folder)
        register_status(app, self.configuration, self.settings)
        self._functions = {
            function.get_function_name(): function.get_user_function() for function in app.get_functions()
        }

    @property
    def names(self) -> set[str]:
        return set(filter(None, self._functions))

    def get(self, what: str, **parameters: str) -> Answer:
        request = func.HttpRequest(
            "GET", f"/api/status/{what}", params=parameters, route_params={"what": what}, body=b""
        )
        return self._answer("busway-status", request)

    def resend(self, content: object, kind: str = "application/json") -> Answer:
        body = json.dumps(content).encode()
        request = func.HttpRequest("POST", "/api/resend", headers={"content-type": kind}, body=body)
        return self._answer("busway-resend", request)

    def _answer(self, name: str, request: func.HttpRequest) -> Answer:
        response = asyncio.run(self._functions[name](request))
        assert response.headers["Cache-Control"] == "no-store"
        return Answer(response.status_code, json.loads(response.get_body()))


def resent_in_steps(dashboard: Dashboard, order: dict[str, object]) -> list[Any]:
    """Repeat the request as the page does, and return the answers."""
    steps = []
    while True:
        step = dashboard.resend(order)
        assert step.code == 200, step.content
        steps.append(step.content)
        if not step.content["waiting"]:
            return steps
        assert len(steps) < 100
