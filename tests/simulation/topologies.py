"""The topologies of the simulation."""

from dataclasses import replace
from datetime import timedelta

from busway_broker.config import HubConfig, NamespaceConfig, SubscriptionConfig, TopicConfig
from tests.simulation.topology import MOST_DELIVERIES, Input, Topology, queue, topic

_PARTITIONS = 3
_REJECTS = "rejects: {connection: west, queue: rejected}"


def _one_way(
    name: str,
    *,
    sessions: bool,
    more: str = "",
    in_order: bool = True,
    is_partitioned: bool = False,
    detects: bool = False,
    rejects: str = _REJECTS,
    schedules: bool = False,
) -> Topology:
    """Return a task with two routes; what its targets are decides which batches they take."""
    west = NamespaceConfig(name="west", queues=(queue("orders", sessions=sessions), queue("rejected")))
    targets = [
        replace(config, enable_partitioning=is_partitioned, requires_duplicate_detection=detects)
        for config in (queue("orders", sessions=sessions), queue("express"))
    ]
    east = NamespaceConfig(name="east", queues=tuple(targets))
    flag = ", sessions: true" if sessions else ""
    return Topology(
        name,
        (west, east),
        f"""
task: west-to-east
source: {{connection: west, queue: orders{flag}}}
editors:
  - filter: "kind <> 'unwanted' OR kind IS NULL"
  - validate: {{content_type: application/json}}
routes:
  - when: "express = 1"
    target: {{connection: east, queue: express}}
  - target: {{connection: east, queue: orders}}
{rejects}
{more}
""",
        (
            Input(
                *("west", "orders", (("east", "express"), ("east", "orders")), "express", "west-to-east"),
                schedules=schedules,
            ),
        ),
        has_order=in_order,
        detects=detects,
        dead_letters=not rejects,
    )


def _carry(source: str, target: str, *, sessions: bool) -> str:
    flag = ", sessions: true" if sessions else ""
    return f"""
task: {source}-to-{target}
source:
  {{connection: {source}, topic: orders, subscription: replication{flag},
   rule: {{filter: "replication IS NULL", action: "SET replication = 1"}}}}
routes:
  - target: {{connection: {target}, topic: orders}}
rejects: {{connection: {source}, queue: rejected}}
"""


def _pair(name: str, *, sessions: bool) -> Topology:
    sites = "west", "east"
    tasks = "---".join(
        _carry(source, target, sessions=sessions) for source, target in (("west", "east"), ("east", "west"))
    )
    namespaces = [
        NamespaceConfig(name=each, topics=(topic("orders", sessions=sessions),), queues=(queue("rejected"),))
        for each in sites
    ]
    app = "orders/Subscriptions/app"
    inputs = [
        Input(here, "orders", ((there, app), (here, app)), task=f"{here}-to-{there}")
        for here, there in (("west", "east"), ("east", "west"))
    ]
    return Topology(name, namespaces, tasks, inputs, has_order=sessions, has_mark=True)


def _ring() -> Topology:
    """Return a ring of three: each carries on what has not been at the next site."""
    ring = (("west", "north"), ("north", "east"), ("east", "west"))
    namespaces, tasks, inputs = [], [], []
    for here, there in ring:
        entities = queue(f"to-{there}", sessions=True), queue("rejected"), queue("app")
        topic_ = TopicConfig(
            name="orders",
            subscriptions=(
                SubscriptionConfig(name="app"),
                SubscriptionConfig(name="replication", requires_session=True, max_delivery_count=MOST_DELIVERIES),
            ),
        )
        namespaces.append(NamespaceConfig(name=here, topics=(topic_,), queues=entities))
        tasks.append(f"""
task: {here}-to-{there}
source: {{connection: {here}, topic: orders, subscription: replication, sessions: true}}
routes:
  - target: {{connection: {there}, topic: orders}}
rejects: {{connection: {here}, queue: rejected}}
""")
        places = [(site, "orders/Subscriptions/app") for site, _ in ring]
        inputs.append(Input(here, "orders", places, task=f"{here}-to-{there}"))
    return Topology("ring of three", namespaces, "---".join(tasks), inputs, ring=[here for here, _ in ring], taps=0)


def _hub_and_back() -> Topology:
    west = NamespaceConfig(
        name="west",
        hubs=(
            HubConfig(name="events", partition_count=_PARTITIONS),
            HubConfig(name="orders", partition_count=_PARTITIONS),
        ),
        queues=(queue("rejected"), queue("orders", sessions=True)),
    )
    east = NamespaceConfig(
        name="east", queues=(queue("events", sessions=True), queue("orders", sessions=True), queue("rejected"))
    )
    return Topology(
        "hub to queue and back",
        (west, east),
        """
task: events-to-east
source: {connection: west-hub, hub: events}
routes:
  - target: {connection: east, queue: events}
rejects: {connection: east, queue: rejected}
---
task: orders-to-west
source: {connection: east, queue: orders, sessions: true}
routes:
  - target: {connection: west-hub, hub: orders}
rejects: {connection: east, queue: rejected}
""",
        (
            Input("west", "events", (("east", "events"),), task="events-to-east"),
            Input("east", "orders", (("west", "orders"),), task="orders-to-west"),
        ),
        kinds={"west-hub": "event-hubs"},
    )


def _hub_to_hub() -> Topology:
    events = HubConfig(name="events", partition_count=_PARTITIONS)
    return Topology(
        "hub to hub",
        (
            NamespaceConfig(name="west", hubs=(events,), queues=(queue("rejected"),)),
            NamespaceConfig(name="east", hubs=(events,)),
        ),
        """
task: west-to-east
source: {connection: west-hub, hub: events, reader: app}
routes:
  - target: {connection: east-hub, hub: events}
rejects: {connection: west, queue: rejected}
limits: {hold: PT20S}
""",
        (Input("west", "events", (("east", "events"),), task="west-to-east"),),
        kinds={"west-hub": "event-hubs", "east-hub": "event-hubs"},
    )


def _spillover() -> Topology:
    """Return a task for dead letters, and one that withholds what was sent before."""
    west = NamespaceConfig(name="west", queues=(queue("jobs"), queue("orders"), queue("rejected")))
    east = NamespaceConfig(name="east", queues=(queue("jobs"), queue("orders")))
    return Topology(
        "spillover",
        (west, east),
        """
task: spill
source: {connection: west, queue: jobs, dead_letter: true}
routes:
  - target: {connection: east, queue: jobs}
rejects: {connection: west, queue: rejected}
loop_prevention: off
---
task: once
source: {connection: west, queue: orders}
editors:
  - deduplicate: {window: P1D, store: {setting: STORE}}
routes:
  - target: {connection: east, queue: orders}
rejects: {connection: west, queue: rejected}
""",
        (
            Input("west", "jobs", (("east", "jobs"),), task="spill", is_dead=True),
            Input("west", "orders", (("east", "orders"),), task="once", is_repeated=True),
        ),
        has_order=False,
    )


def _output_binding() -> Topology:
    """Return tasks whose messages the host sends, after the function has returned, and one that checks a chain."""
    linked = queue("linked", sessions=True)
    west = NamespaceConfig(name="west", queues=(queue("notes"), queue("orders"), linked, queue("rejected")))
    places = queue("notes"), queue("carrier"), queue("orders"), linked, replace(linked, name="checked")
    east = NamespaceConfig(name="east", queues=(*places, queue("rejected")))
    return Topology(
        "output binding",
        (west, east),
        """
task: notes-to-east
source: {connection: west, queue: notes}
routes:
  - target: {connection: east, queue: notes}
    via: binding
    body_only: true
rejects: {connection: west, queue: rejected}
---
task: orders-to-carrier
source: {connection: west, queue: orders}
routes:
  - target: {connection: east, queue: carrier}
    via: binding
rejects: {connection: west, queue: rejected}
---
task: carrier-to-orders
source: {connection: east, queue: carrier, from: envelope}
routes:
  - target: {connection: east, queue: orders}
rejects: {connection: east, queue: rejected}
---
task: link
source: {connection: west, queue: linked, sessions: true}
editors:
  - chain: {key: key, sequence: session, store: {setting: STORE}}
routes:
  - target: {connection: east, queue: linked}
rejects: {connection: west, queue: rejected}
---
task: check
source: {connection: east, queue: linked, sessions: true}
editors:
  - verify-chain: {key: key, store: {setting: STORE}}
routes:
  - target: {connection: east, queue: checked}
rejects: {connection: east, queue: rejected}
""",
        (
            Input("west", "notes", (("east", "notes"),), task="notes-to-east", has_bodies_only=True),
            Input("west", "orders", (("east", "orders"),), task="orders-to-carrier", beyond="east"),
            Input("west", "linked", (("east", "checked"),), task="link", beyond="east"),
        ),
        has_order=False,
        # It is on record as sent before the host sends it: a loss between two attempts is in no journal.
        taps=0,
    )


def _with_editor(name: str, editor: str, *, splits: bool = False, joins: bool = False) -> Topology:
    """Return a task with sessions and one *editor*."""
    west = NamespaceConfig(name="west", queues=(queue("orders", sessions=True), queue("rejected")))
    east = NamespaceConfig(name="east", queues=(queue("orders", sessions=True),))
    return Topology(
        name,
        (west, east),
        f"""
task: west-to-east
source: {{connection: west, queue: orders, sessions: true}}
editors:
  - {editor}
routes:
  - target: {{connection: east, queue: orders}}
rejects: {{connection: west, queue: rejected}}
""",
        (Input("west", "orders", (("east", "orders"),), task="west-to-east"),),
        splits=splits,
        joins=joins,
        taps=1 if joins else 2,
    )


def _several_from_hub() -> Topology:
    """Return a task of a hub with two targets, whose events are read again after a checkpoint."""
    events = HubConfig(name="events", partition_count=_PARTITIONS)
    orders = queue("orders", sessions=True)
    return Topology(
        "several targets from a hub",
        (
            NamespaceConfig(name="west", hubs=(events,), queues=(queue("rejected"),)),
            NamespaceConfig(name="east", queues=(orders,)),
            NamespaceConfig(name="north", queues=(orders,)),
        ),
        """
task: fan-out
source: {connection: west-hub, hub: events}
routes:
  - target:
      - {connection: east, queue: orders}
      - {connection: north, queue: orders}
rejects: {connection: west, queue: rejected}
limits: {hold: PT60S}
""",
        (Input("west", "events", (("east", "orders"), ("north", "orders")), task="fan-out"),),
        kinds={"west-hub": "event-hubs"},
    )


def _several(
    name: str, *, sessions: bool, editors: str = "", more: str = "", detects: bool = False, rejects: str = _REJECTS
) -> Topology:
    """Return a task with three targets, one of which refuses what is heavy; with *detects* no copy is kept twice."""
    copies = replace(
        queue("orders", sessions=sessions),
        requires_duplicate_detection=detects,
        duplicate_detection_history_time_window=timedelta(hours=2),
    )
    events = HubConfig(name="events", partition_count=_PARTITIONS)
    flag = ", sessions: true" if sessions else ""
    places = ("east", "orders"), ("north", "orders"), ("east", "events")
    last = "{connection: east-hub, hub: events}"
    if detects:
        places, last = (*places[:2], ("east", "archive")), "{connection: east, queue: archive}"
    return Topology(
        name,
        (
            NamespaceConfig(name="west", queues=(queue("orders", sessions=sessions), queue("rejected"))),
            NamespaceConfig(name="east", queues=(copies, replace(copies, name="archive")), hubs=(events,)),
            NamespaceConfig(name="north", queues=(copies,)),
        ),
        f"""
task: fan-out
source: {{connection: west, queue: orders{flag}}}
{editors}
routes:
  - target:
      - {{connection: east, queue: orders}}
      - {{connection: north, queue: orders}}
      - {last}
{rejects}
{more}
""",
        (Input("west", "orders", places, task="fan-out"),),
        kinds={} if detects else {"east-hub": "event-hubs"},
        has_order=sessions,
        splits=bool(editors),
        refuses=("north", "orders"),
        detects=detects,
        dead_letters=not rejects,
    )


THREE_TARGETS = _several("several targets", sessions=True)
TARGETS_OF_HUB = _several_from_hub()
DETECTING_TARGETS = _several("several targets that detect duplicates", sessions=True, detects=True)
PAIR = _pair("pair", sessions=False)
PAIR_WITH_SESSIONS = _pair("pair with sessions", sessions=True)
HUB_AND_BACK = _hub_and_back()
HUB_TO_HUB = _hub_to_hub()
TOPOLOGIES = (
    PAIR,
    PAIR_WITH_SESSIONS,
    _one_way("one way", sessions=False, in_order=False),
    _one_way("one way with sessions", sessions=True, more="ttl: remaining", schedules=True),
    _one_way("lanes", sessions=True, more="lanes: 2", rejects=""),
    _one_way("single dispatch", sessions=False, more="dispatch: single", in_order=False, rejects=""),
    _one_way("single dispatch with sessions", sessions=True, more="dispatch: single\nlimits: {hold: PT5S}"),
    _one_way("to partitioned queues", sessions=False, more="limits: {rate: 0.2}", in_order=False, is_partitioned=True),
    _one_way("to partitioned queues that detect duplicates", sessions=True, is_partitioned=True, detects=True),
    _ring(),
    HUB_AND_BACK,
    HUB_TO_HUB,
    _spillover(),
    _output_binding(),
    _with_editor("split", "split: {from: json-array}", splits=True),
    _with_editor("batch", "batch: {as: json-array, max_count: 3}", joins=True),
    THREE_TARGETS,
    _several("several targets, single dispatch", sessions=False, more="dispatch: single"),
    _several("several targets of parts", sessions=True, editors="editors: [{split: {from: json-array}}]", rejects=""),
    DETECTING_TARGETS,
    TARGETS_OF_HUB,
)
