"""
Why the service refused a token, which Microsoft's SDKs for Python drop.

The service answers a token on `$cbs` with a status, a description and, if it refuses it, a condition
(Azure/azure-service-bus-java issue 354). With a condition the SDK forgets the other two, so that a missing entity, an
expired token, a wrong key and the firewall all look alike.

The SDKs' versions are pinned; tests/wire/test_refused_tokens.py fails if any of this changes.
"""

from collections.abc import Awaitable, Callable
from typing import Any


def name_refused_tokens(end: Any, error_type: Callable[..., Exception]) -> None:
    """Let *end*, a sender or producer that is not open yet, raise an *error_type* with what `$cbs` has answered."""
    create: Callable[..., None] = end._create_handler

    def create_handler(*arguments: object, **options: object) -> None:
        create(*arguments, **options)
        _name_refusals(end._handler, error_type)

    end._create_handler = create_handler


def _name_refusals(handler: Any, error_type: Callable[..., Exception]) -> None:
    is_authorized: Callable[[], Awaitable[bool]] = handler.auth_complete_async
    refused: list[Exception] = []

    async def authorize() -> bool:
        cbs = handler._cbs_authenticator
        if cbs is not None and not hasattr(cbs, "busway_complete"):
            complete = cbs.busway_complete = cbs._on_execute_operation_complete

            async def completed(
                result: object, status: object, description: object, message: object, condition: Any = None
            ) -> None:
                if condition:
                    refused.append(error_type(condition, description=description))
                await complete(result, status, description, message, condition)

            cbs._on_execute_operation_complete = completed
        if refused:
            raise refused[-1]
        return await is_authorized()

    handler.auth_complete_async = authorize
