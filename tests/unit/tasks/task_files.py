"""A valid task file and the connections that it uses."""

CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST, site: e}
hub-west: {kind: event-hubs, setting: HUB_WEST}
"""

TASK = """\
task: copy
source: {connection: west, queue: orders}
routes:
  - target: {connection: east, queue: orders}
"""

REJECTS = "rejects: {connection: west, queue: rejected}\n"
