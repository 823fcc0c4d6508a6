"""
A local Azure Resource Manager for jobs of Container Apps, with a managed identity.

It answers as the REST API reference says (2024-03-01: Jobs - Get, Jobs - Start, Jobs Executions - List) and refuses
requests without a token from the identity.
"""

import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.vault import IDENTITY_HEADER

JOB = "/subscriptions/s-1/resourceGroups/rg/providers/Microsoft.App/jobs/reconcile"
ON_A_PAGE = 2


@dataclass
class Trouble:
    """An answer in place of the usual one; *after_all* still performs the request, like a lost answer."""

    status: int
    code: str = "Trouble"
    headers: Mapping[str, str] = field(default_factory=dict)
    after_all: bool = False


class Management:
    """One job; `troubles` are answers to the next requests by method and last part of the path."""

    def __init__(self) -> None:
        self.executions: list[dict[str, Any]] = []
        self.started: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.troubles: dict[str, list[Trouble]] = {}
        self.tokens: dict[str, str] = {}
        self.lock = threading.Lock()
        self.template: dict[str, Any] = {
            "containers": [
                {
                    "name": "reconcile",
                    "image": "registry.example/busway-reconcile:1",
                    "args": ["--journal", "https://a.example/journal", "--results", "https://a.example/reconciliation"],
                    "env": [{"name": "AZURE_CLIENT_ID", "value": "c-1"}, {"name": "KEY", "secretRef": "key"}],
                    "resources": {"cpu": 2, "memory": "4Gi", "ephemeralStorage": "8Gi"},
                    "volumeMounts": [],
                    "probes": [],
                }
            ]
        }

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Answers)
        self._server.management = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def job(self) -> str:
        return f"{self.url}{JOB}"

    def identity(self) -> dict[str, str]:
        """Return the environment in which the SDK finds the identity, as Azure Functions sets it."""
        return {"IDENTITY_ENDPOINT": f"{self.url}/msi/token", "IDENTITY_HEADER": IDENTITY_HEADER}

    def run(self, template: Mapping[str, Any]) -> dict[str, Any]:
        with self.lock:
            number = len(self.executions) + 1
            execution = {
                "name": f"reconcile-{number}",
                "id": f"{JOB}/executions/reconcile-{number}",
                "type": "Microsoft.App/jobs/executions",
                "properties": {
                    "status": "Running",
                    "startTime": f"2026-11-21T01:{number:02}:00+00:00",
                    "template": template,
                },
            }
            self.executions.append(execution)
            return execution

    def end(self, status: str, number: int = -1) -> None:
        self.executions[number]["properties"]["status"] = status

    def next_trouble(self, key: str) -> Trouble | None:
        with self.lock:
            waiting = self.troubles.get(key)
            return waiting.pop(0) if waiting else None


class _Server(ThreadingHTTPServer):
    management: Management
    daemon_threads = True


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/msi/token":
            self._token(parse_qs(parts.query))
            return
        management = self.server.management
        if not self._is_let_in("GET"):
            return
        if parts.path == JOB:
            self._answer(200, {"id": JOB, "name": "reconcile", "properties": {"template": management.template}})
        elif parts.path == f"{JOB}/executions":
            first = int(parse_qs(parts.query).get("skip", ["0"])[0])
            newest_first = list(reversed(management.executions))
            page: dict[str, Any] = {"value": newest_first[first : first + ON_A_PAGE]}
            if len(newest_first) > first + ON_A_PAGE:
                page["nextLink"] = f"{management.url}{JOB}/executions?api-version=2024-03-01&skip={first + ON_A_PAGE}"
            self._answer(200, page)
        else:
            self._answer(404, _error("ResourceNotFound"))

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        management = self.server.management
        if not self._is_let_in("POST", lambda: management.run(content)):
            return
        assert urlsplit(self.path).path == f"{JOB}/start", self.path
        # A container in a request must be complete.
        assert all(each["image"] and each["name"] for each in content["containers"])
        assert all(
            set(each) <= {"image", "name", "command", "args", "env", "resources"} for each in content["containers"]
        )
        management.started.append(content)
        execution = management.run(content)
        self._answer(202, {"id": execution["id"], "name": execution["name"]}, {"Location": f"{management.url}/later"})

    def _is_let_in(self, method: str, do: Any = None) -> bool:
        management = self.server.management
        parts = urlsplit(self.path)
        key = f"{method} {parts.path.rpartition('/')[2]}"
        management.requests.append(key)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if management.tokens.get(token) != management.url:
            self._answer(401, _error("AuthenticationFailed"))
            return False
        assert parse_qs(parts.query)["api-version"] == ["2024-03-01"], self.path
        trouble = management.next_trouble(key)
        if trouble is None:
            return True
        if trouble.after_all and do is not None:
            do()
        self._answer(trouble.status, _error(trouble.code), trouble.headers)
        return False

    def _token(self, query: Mapping[str, list[str]]) -> None:
        if self.headers.get("X-IDENTITY-HEADER") != IDENTITY_HEADER:
            self._answer(HTTPStatus.UNAUTHORIZED, {})
            return
        token, resource = uuid.uuid4().hex, query["resource"][0]
        self.server.management.tokens[token] = resource
        content = {"access_token": token, "expires_on": "4102444800", "resource": resource, "token_type": "Bearer"}
        self._answer(200, content)

    def _answer(self, status: int, content: object, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        all_headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        for name, value in all_headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _error(code: str) -> dict[str, object]:
    return {"error": {"code": code, "message": "as Resource Manager puts it, with a secret-4711 perhaps"}}
