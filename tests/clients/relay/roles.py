"""The roles of two endpoints."""

from busway_clients import (
    RoleState,
)

WEST_ACTIVE = RoleState("west", ("east",))
EAST_ACTIVE = RoleState("east", ("west",))
