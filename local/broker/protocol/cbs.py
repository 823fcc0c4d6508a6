"""Claims-based security: every token is taken, as the broker has no keys to check it with."""

from local.broker.protocol.request_node import Node, Request, Response, ok

ADDRESS = "$cbs"


def _answer(request: Request) -> Response:
    if request.operation not in ("put-token", "delete-token"):
        return Response(400, f"$cbs: operation {request.operation!r}, expected put-token")
    return ok()


NODE = Node(ADDRESS, _answer, "status-code", "status-description")
