"""Where telemetry goes, on this machine: a collector that speaks OTLP, and the ingestion endpoint of Azure Monitor."""

import gzip
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Keeps what is sent to it: `received` has the decoded bodies by path."""

    def __init__(self) -> None:
        self.received: dict[str, list[bytes]] = {}

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Answers)
        self._server.collector = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def spans(self) -> list[Span]:
        """Return all spans that came over OTLP."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.received.get("/v1/traces", ())]
        return [
            span
            for request in requests
            for of in request.resource_spans
            for scope in of.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, Metric]:
        """Return each metric as it came last over OTLP: sums are of all that has been."""
        requests = [ExportMetricsServiceRequest.FromString(body) for body in self.received.get("/v1/metrics", ())]
        return {
            metric.name: metric
            for request in requests
            for of in request.resource_metrics
            for scope in of.scope_metrics
            for metric in scope.metrics
        }

    def service_names(self) -> set[str]:
        requests = [ExportMetricsServiceRequest.FromString(body) for body in self.received.get("/v1/metrics", ())]
        return {
            str(plain(of.resource.attributes)["service.name"])
            for request in requests
            for of in request.resource_metrics
        }

    def envelopes(self) -> list[dict[str, Any]]:
        """Return all envelopes that came to the endpoint of Azure Monitor."""
        bodies = [body for path, bodies in self.received.items() if path.startswith("/v2") for body in bodies]
        return [envelope for body in bodies for envelope in json.loads(body)]


def plain(attributes: Any) -> dict[str, object]:
    """Return the attributes of a span, a link, a data point or a resource."""
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value") or "string_value")
        for attribute in attributes
    }


class _Server(ThreadingHTTPServer):
    collector: Collector
    daemon_threads = True


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise the body of an answer waits for 40 ms until its head is acknowledged.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.collector.received.setdefault(self.path, []).append(body)
        is_azure = self.path.startswith("/v2")
        count = len(json.loads(body)) if is_azure else 0
        answer: Mapping[str, object] = {"itemsReceived": count, "itemsAccepted": count, "errors": []}
        content = json.dumps(answer).encode() if is_azure else b""
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if is_azure else "application/x-protobuf")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
