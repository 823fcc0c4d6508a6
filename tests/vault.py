"""
A key vault and a managed identity on this machine, for the unmodified SDKs.

The vault speaks https and the part of Key Vault's REST API that reads secrets: it challenges who comes without a token,
and takes the tokens that the identity's endpoint gives out, with their resource. The identity is that of App Service
(2019-08-01), which DefaultAzureCredential finds by IDENTITY_ENDPOINT; its tokens are not signed.
"""

import base64
import json
import threading
import time
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, urlsplit

from busway_broker.admin.certificate import AUTHORITY_FILE, server_context

IDENTITY_HEADER = "secret-of-the-worker"
_DAY_SECONDS = 86_400


class Vault:
    """A vault that holds secrets by name, each with its version; `failing` is the answer to all but the challenge."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failing: tuple[int, str, Mapping[str, str]] | None = None
        self.requests: list[str] = []
        self.tokens: dict[str, str] = {}
        self._secrets: dict[str, tuple[str, str]] = {}

    def __enter__(self) -> Self:
        self._vault = _serve(_VaultAnswers, self)
        self._vault.socket = server_context(self.folder).wrap_socket(self._vault.socket, server_side=True)
        self._identity = _serve(_IdentityAnswers, self)
        for server in (self._vault, self._identity):
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._vault, self._identity):
            server.shutdown()
            server.server_close()

    @property
    def port(self) -> int:
        return self._vault.server_address[1]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> str:
        return str(self.folder / AUTHORITY_FILE)

    def identity(self) -> dict[str, str]:
        """Return the environment in which the SDK finds the identity, as Azure Functions sets it."""
        endpoint = f"http://127.0.0.1:{self._identity.server_address[1]}/msi/token"
        return {"IDENTITY_ENDPOINT": endpoint, "IDENTITY_HEADER": IDENTITY_HEADER}

    def set(self, name: str, value: str) -> None:
        self._secrets[name] = value, uuid.uuid4().hex

    def remove(self, name: str) -> None:
        del self._secrets[name]

    def secret(self, name: str) -> tuple[str, str] | None:
        return self._secrets.get(name)


class _Server(ThreadingHTTPServer):
    vault: Vault
    daemon_threads = True


def _serve(answers: type[BaseHTTPRequestHandler], vault: Vault) -> _Server:
    server = _Server(("127.0.0.1", 0), answers)
    server.vault = vault
    return server


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    no_headers: ClassVar[dict[str, str]] = {}

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, content: object, headers: Mapping[str, str] = no_headers) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class _VaultAnswers(_Answers):
    def do_GET(self) -> None:
        vault = self.server.vault
        parts = urlsplit(self.path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in vault.tokens:
            # The resource is the domain that the vault is in. The part before the first dot is its name.
            resource = f"https://0.0.1:{vault.port}"
            challenge = f'Bearer authorization="https://login.example/tenant", resource="{resource}"'
            self.answer(HTTPStatus.UNAUTHORIZED, _error("Unauthorized"), {"WWW-Authenticate": challenge})
            return
        assert "api-version=" in parts.query, parts.query
        _, folder, name, *_ = parts.path.split("/")
        assert folder == "secrets", parts.path
        vault.requests.append(name)
        if vault.failing is not None:
            status, code, headers = vault.failing
            self.answer(status, _error(code), headers)
            return
        found = vault.secret(name)
        if found is None:
            self.answer(HTTPStatus.NOT_FOUND, _error("SecretNotFound"))
            return
        value, version = found
        attributes = {"enabled": True, "created": 1, "updated": 1}
        self.answer(
            HTTPStatus.OK, {"value": value, "id": f"{vault.url}/secrets/{name}/{version}", "attributes": attributes}
        )


class _IdentityAnswers(_Answers):
    def do_GET(self) -> None:
        if self.headers.get("X-IDENTITY-HEADER") != IDENTITY_HEADER:
            self.answer(HTTPStatus.UNAUTHORIZED, {})
            return
        resource = parse_qs(urlsplit(self.path).query)["resource"][0]
        issued = token(resource)
        self.server.vault.tokens[issued] = resource
        content: dict[str, Any] = {"access_token": issued, "expires_on": str(int(time.time()) + _DAY_SECONDS)}
        self.answer(HTTPStatus.OK, {**content, "resource": resource, "token_type": "Bearer"})


def token(resource: str, seconds: int = _DAY_SECONDS) -> str:
    """Return a token of the form of Entra ID's, without a signature, which Azurite and Kafka's test mode accept."""
    now = int(time.time())
    claims = {
        "aud": resource,
        "iss": f"https://sts.windows.net/{uuid.uuid4()}/",
        "iat": now - 60,
        "nbf": now - 60,
        "exp": now + seconds,
        "jti": uuid.uuid4().hex,
        "sub": "token",
    }
    parts = (json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, b""))


def _error(code: str) -> dict[str, object]:
    return {"error": {"code": code, "message": "as the vault puts it"}}
