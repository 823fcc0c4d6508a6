"""
Claims-based security: the node that clients put their tokens on.

Source: "AMQP Claims-based Security" (OASIS working draft); azure-servicebus and @azure/core-amqp for what they send.
"""

from busway_broker import errors
from busway_broker.protocol.claims import Claims
from busway_broker.protocol.requests import Node, Request, Response, ok
from shared.amqp.errors import AmqpError
from shared.amqp.values import symbol

ADDRESS = "$cbs"
_STATUS = {errors.NOT_FOUND: 404, errors.RESOURCE_LIMIT_EXCEEDED: 403}
_CONDITION = "error-condition"


def token_node(claims: Claims) -> Node:
    """Return the node that adds tokens to the claims of a connection."""

    def answer(request: Request) -> Response:
        if request.operation == "delete-token":
            return ok()
        if request.operation != "put-token":
            return Response(400, f"$cbs: operation {request.operation!r}, expected put-token")
        name, token = request.properties.get("name"), request.content
        audience = name.payload if name is not None and isinstance(name.payload, str) else ""
        try:
            claims.put(token.payload if token is not None and isinstance(token.payload, str) else "", audience)
            claims.check_exists(audience)
        except AmqpError as refusal:
            # With a condition azure-servicebus loses the status and the description: so it does in Azure.
            condition = {_CONDITION: symbol(refusal.condition)}
            return Response(_STATUS.get(refusal.condition, 401), refusal.description, properties=condition)
        return ok()

    return Node(ADDRESS, answer, "status-code", "status-description")
