"""
Findings, and all checks of a review with severity, meaning and remedy; docs/reference/checks.md shows this table.

An error is certain to make messages loop, get lost or stay behind, whatever they contain; everything else is a warning.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from shared.errors import Problem


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(eq=False)
class Check:
    """One kind of finding; `needs_entities` if the task files alone are not enough."""

    meaning: str
    remedy: str
    severity: Severity
    needs_entities: bool = False
    name: str = field(init=False)
    """As in reports: that of its constant with hyphens, such as endless-loop."""

    def __set_name__(self, _: type, name: str) -> None:
        self.name = name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: the check, the place, and what is wrong there."""

    check: Check
    path: str
    seen: str

    @property
    def problem(self) -> Problem:
        """Return the finding as a problem of the configuration, with the remedy of its check as the hint."""
        return Problem(self.path, self.seen, self.check.remedy)

    def __str__(self) -> str:
        """Return the finding in one line: severity and name of the check, place, what is wrong, how to fix it."""
        return f"{self.check.severity} {self.check.name}: {self.problem}"


_error, _warning = partial(Check, severity=Severity.ERROR), partial(Check, severity=Severity.WARNING)
_error_of_entities, _warning_of_entities = partial(_error, needs_entities=True), partial(_warning, needs_entities=True)


class Checks:
    """The checks, each with its meaning and its remedy."""

    # Loops
    ENDLESS_LOOP = _error(
        "Messages come back to an entity where they were and are copied again, endlessly: no task on the path "
        "prevents loops, and no rule stops messages that were copied before.",
        "remove `loop_prevention: off` from one of the tasks, or give each subscription on the path a rule such as "
        "`replication IS NULL` with the action `SET replication = 1`",
    )
    LOOP_THROUGH_DEAD_LETTERS = _error(
        "A message that no consumer can process moves between dead-letter queues endlessly.",
        "add a first route for messages that have failed twice: `when: \"[repl-dlq-source] LIKE '%;%'\"` to an "
        "auxiliary queue that no task receives from",
    )
    LOOP_THROUGH_REJECTS = _error(
        "Other tasks send the messages that one task rejects back to its source, where they are rejected again, "
        "endlessly.",
        "give `rejects` a queue that no task receives from",
    )
    POSSIBLE_LOOP = _warning(
        "Messages can come back to an entity where they were. The task files do not say whether a rule stops them "
        "there.",
        "remove `loop_prevention: off` from one of the tasks, or declare the rule of each subscription in its task",
    )
    ONE_BIT_MARK = _error(
        "A mark that says only that a message was copied stops it at its second site. In a ring of three sites, or a "
        "hub with spokes, the other sites never get it.",
        "select by the path instead of the mark: remove the rule and let `loop_prevention` stop messages that come "
        "back, or connect every site with every other site",
    )
    MARK_ENDS_CHAIN = _warning(
        "The rule of this task's source does not select messages that another task has marked on their way here.",
        "use marks with different names in the two tasks, or remove the rule if this task is to forward these messages",
    )
    GUARD_WITHHOLDS = _error(
        "Messages are sent to another entity of a site that they have already left. That is not a loop, but loop "
        "prevention withholds every message that returns to a site.",
        "set `loop_prevention: off` in this task, or let the first task send to the last entity directly",
    )
    HOPS_TOO_FEW = _error(
        "Messages need more hops to reach an entity than this task allows.",
        "raise `loop_prevention.max_hops`",
    )
    ARRIVES_TWICE = _warning(
        "Every message reaches an entity on two paths, so its consumers get it twice.",
        "remove one of the paths; in a mesh give each source the rule `replication IS NULL` with the action `SET "
        "replication = 1`; or enable duplicate detection at the target",
    )
    TOO_MANY_WAYS = _warning(
        "The tasks connect the entities by more paths than the check can follow; not all were checked.",
        "check parts of the tasks in separate folders, and keep `loop_prevention` on",
    )
    TWO_NAMES_OF_A_NAMESPACE = _warning(
        "Two connections with one app setting have different site names, so repl-path counts one site as two.",
        "give both connections the same `site`",
    )
    HISTORY_CHANGED = _warning(
        "An action changes a property in which Busway keeps a message's path. Loop prevention and conditions on "
        "`[repl-dlq-source]` then use wrong data.",
        "do not change properties that begin with repl- in actions",
    )

    # Rules
    RULE_NEVER_TRUE = _error(
        "No message can satisfy the rule of the source, so the task copies nothing.",
        "fix the condition; a comparison with a missing property or with another type is unknown, never true",
    )
    DOUBLE_QUOTED_TEXT = _error(
        "A rule compares with, or sets, a name in double quotes. In the SQL of Service Bus that is a property, not "
        'text: `color = "red"` compares with the property named red.',
        "write text in single quotes; if the property is meant, write it in brackets: [color]",
    )
    RULE_NEEDS_ITS_MARK = _error(
        "The rule compares a mark that only its own action sets. Without the mark the comparison is unknown, not "
        "true, so no message is ever selected: `replication <> 1` is the usual case.",
        "write `replication IS NULL`, with the mark's own name",
    )
    FILTER_WITHHOLDS_ALL = _error(
        "No message can satisfy the filter editor, so all are completed and none is sent.",
        "fix the condition; a comparison with a missing property or with another type is unknown, never true",
    )
    MARK_OF_ANOTHER_TYPE = _warning(
        "A condition compares a property with a value of another type than the actions set: '1' is not 1, so the "
        "comparison is unknown.",
        "write both values the same way, with or without quotes",
    )
    DEFAULT_BESIDE_ACTION = _warning_of_entities(
        "Beside a rule with an action, the subscription has a rule that selects everything: each message is copied "
        "twice, once with the mark and once without.",
        "delete the rule $Default from the subscription",
    )
    RULE_NOT_DEPLOYED = _warning_of_entities(
        "The rules of the subscription differ from the rule that the task declares.",
        "create the declared rule on the subscription and delete the others, or declare the existing rule",
    )

    # Routes
    UNREACHABLE_ROUTE = _warning(
        "No message can reach this route, because the routes before it take all messages that could satisfy it.",
        "move it before them, or remove it",
    )
    UNROUTED_MESSAGES = _warning(
        "A message that satisfies no route is completed at the source and sent nowhere.",
        "add a last route without `when`; if the rest is to be dropped, say so with a filter under `editors`",
    )
    RANDOM_ID = _warning(
        "The route gives a message a new id at every attempt, so duplicate detection cannot recognize it.",
        "keep the id: Busway gives messages without an id one that stays the same",
    )

    # Sources and rejects
    COMPETING_TASKS = _error(
        "Two tasks receive from the same queue, subscription or consumer group, so each gets only some of the "
        "messages.",
        "make it one task with two routes, or give the second its own subscription or consumer group",
    )
    SOURCE_FORWARDS = _error_of_entities(
        "The source auto-forwards its messages to another entity, so it has no messages to receive.",
        "disable auto-forwarding, or use the entity that it forwards to as the source",
    )
    ENTITY_MISSING = _error_of_entities(
        "The namespace has no such queue, topic, subscription, hub or consumer group.",
        "create it, on this machine with `busway plan --config-json config/entities`, or fix its name",
    )
    PARTITION_COUNTS_DIFFER = _warning_of_entities(
        "The task keeps partitions, and the target's hub has more partitions than the source's. The additional ones "
        "stay empty, and events that an application sends to the target by key may go to another partition than the "
        "copies with that key.",
        "give both hubs the same number of partitions, or leave `partition` out so that the key decides",
    )
    PARTITION_MISSING = _error_of_entities(
        "The task names or keeps a partition that the hub does not have.",
        "use existing partitions; if the numbers of partitions differ, leave `partition` out so that the key decides",
    )
    BINARY_PROPERTIES = _warning(
        "Azure's Functions host cannot pass events with binary, list, array or map properties to a function, and none "
        "of a Kafka producer that has a key or a header. A batch with such an event fails before Busway is called and "
        "is retried endlessly: nothing is lost, but the partition is stuck.",
        "if no sender uses such properties and none is a Kafka client, set `binary_properties: false` in the source; "
        "otherwise set `reader: app`, or have senders send them as text, such as base64",
    )
    MISSING_REJECTS = _warning(
        "Without `rejects`, a rejected message goes to the source's dead-letter queue, among messages that are there "
        "for other reasons. If Busway may not settle it there, its whole batch is delivered again until the source "
        "dead-letters all of it.",
        "add `rejects` with a queue at the source's site",
    )
    REJECTS_AMONG_COPIES = _warning(
        "The task sends rejected messages to the same entity as copies, so the consumers there get both.",
        "give `rejects` its own queue",
    )

    # Sessions
    SESSIONS_MISMATCH = _error_of_entities(
        "`sessions` in the task does not match the source, so the host cannot receive from it.",
        "set `sessions` to the value that the entity has",
    )
    ORDER_LOST = _warning(
        "The source has sessions, but nothing at the target requires them: the session id arrives, but consumers do "
        "not get the messages of a session in order.",
        "require sessions at the target's queue or subscription",
    )
    ORDER_WITHOUT_SESSIONS = _warning(
        "The task needs the order of its source, and an entity without sessions keeps none, not even for one "
        "instance: the Functions host releases messages that arrive between two batches, and Service Bus delivers "
        "them after later ones.",
        "require sessions at the source and set `sessions: true`; without them expect messages in another order",
    )
    SESSION_ID_MISSING = _warning(
        "The target requires sessions and the source does not: messages without a session id are rejected, or "
        "dead-lettered by the subscription.",
        "require sessions at the source, set the id in the route, `action: \"SET sys.SessionId = 'all'\"`, or send "
        'messages without an id elsewhere, `when: "sys.SessionId IS NOT NULL"`; from a hub, the partition key becomes '
        'the session id, `when: "sys.PartitionKey IS NOT NULL"`',
    )
    REJECTS_NEED_SESSION = _warning_of_entities(
        "The queue for rejected messages requires sessions. A message that was rejected because it has no session id "
        "cannot go there either, and its batch is stuck.",
        "use a queue without sessions",
    )
    REJECTS_DETECT_DUPLICATES = _warning_of_entities(
        "The entity for rejected messages drops one with the id of an earlier one: of a message that several targets "
        "or parts refuse, all but the first, and one that is rejected again after it was resent.",
        "use an entity without duplicate detection for `rejects`",
    )

    # Time to live
    EXPIRED_DEAD_LETTERS = _error(
        "Messages do not expire in a dead-letter queue, but their time to live still runs. `ttl: remaining` "
        "completes, unsent, every message that expired before or waited there longer than its time to live.",
        "use `ttl: keep` or a stamp",
    )
    TTL_WITHOUT_EFFECT = _warning(
        "Event Hubs has no time to live: events have none, and copies in a hub ignore it.",
        "remove `ttl`; from a hub to a queue or topic, use a stamp",
    )
    TTL_CUT = _warning_of_entities(
        "The target's default time to live is shorter than the one that the task stamps or the source grants, and "
        "Service Bus silently uses the shorter one.",
        "raise the target's default, or stamp at most that",
    )

    # Deliveries
    FEW_DELIVERIES = _warning_of_entities(
        "An outage of three days moves messages into the source's dead-letter queue: each delivery that fails counts, "
        "and lasts as long as `limits.hold`. It lasts one lock if several functions of the app take from sessions, "
        "because the host finds a session by its id alone, and may renew that of another function.",
        "raise MaxDeliveryCount of the source, which `busway plan` does; or deploy the tasks with sessions as several "
        "apps",
    )
    NO_DUPLICATE_DETECTION = _warning_of_entities(
        "The target does not detect duplicates: if an acknowledgement is lost, the message arrives there twice.",
        "create the target with duplicate detection, or make its consumers idempotent",
    )
    PARTITIONED_DUPLICATES = _warning_of_entities(
        "The target is partitioned and detects duplicates. Such an entity takes no batches: each message costs a "
        "round trip of its own, and messages of one session follow each other one by one.",
        "create the target without partitioning, or without duplicate detection; neither can be changed later",
    )
    NO_SUPPORT_ORDERING = _warning_of_entities(
        "The topic does not support ordering: its subscriptions get messages in another order than it does, also "
        "those of one session.",
        "set SupportOrdering of the topic to true; the SDK for .NET creates topics without it",
    )
    FORWARDED = _warning_of_entities(
        "The target forwards what it gets. Forwarding keeps no order, may repeat messages, has lost some, and nothing "
        "can be received or peeked at there.",
        "let the task send to the last entity of the chain",
    )
    DELETES_ITSELF = _warning_of_entities(
        "The entity deletes itself, with all its messages, once it was idle for AutoDeleteOnIdle: while the task is "
        "off or paused, and with sessions also while the task waits for one.",
        "set AutoDeleteOnIdle to its highest value, `P10675199D`",
    )
    SHORT_DUPLICATE_WINDOW = _warning_of_entities(
        "The source redelivers a message for longer (lock duration times deliveries) than the target remembers its id.",
        "lengthen the target's window, or shorten the source's lock or its number of deliveries",
    )
    RESENT_AS_DUPLICATE = _error_of_entities(
        "The task sends dead-lettered messages back to the entity that they come from. That entity detects duplicates "
        "and silently drops every id that it has seen within its window.",
        'send them to another entity, or set another id in the route: `action: "SET sys.MessageId = sys.MessageId + '
        "'-again'\"`",
    )
    SMALLER_MESSAGES = _warning_of_entities(
        "The target accepts smaller messages than the source; larger ones are rejected.",
        "raise the target's maximum message size",
    )

    # Output bindings
    BINDING_WITHOUT_SESSION = _error_of_entities(
        "An output binding cannot set a session id, so an entity that requires sessions refuses everything.",
        "send to an entity without sessions, or with the SDK: remove `via: binding`",
    )
    BINDING_WITHOUT_ORDER = _warning(
        "The source keeps the order of each session or key, and an output binding cannot set a session id or a "
        "partition key: messages arrive in another order.",
        "send with the SDK: remove `via: binding`",
    )
    BINDING_WITHOUT_RESULT = _error(
        "The editor remembers or deletes something once a message is sent. The task never learns whether an output "
        "binding has sent a message, so the editor remembers and deletes nothing.",
        "move the editor to the task that takes the envelopes, or send with the SDK: remove `via: binding`",
    )
    BODY_LOSES_PROPERTIES = _error(
        "The route sends bodies only, without properties, but a later step needs a property, which never arrives.",
        "remove `body_only`, so that envelopes carry whole messages, or send with the SDK: remove `via: binding`",
    )
    BINARY_BODY = _error(
        "The route sends bodies as text, and an editor makes them binary: every message is rejected.",
        "remove `body_only` or the editor",
    )
    ENVELOPE_NOT_OPENED = _error(
        "A task sends envelopes to this entity and another one takes them as messages, or the reverse.",
        "set `from: envelope` in the source exactly where a route with `via: binding` and without `body_only` sends",
    )

    # Heartbeats
    HEARTBEAT_NOT_HIDDEN = _error_of_entities(
        "The topic gets heartbeats, and a subscription that no task reads selects them: its application gets messages "
        "that are not meant for it.",
        "run `busway apply`, which adds `AND [busway-heartbeat] IS NULL` to its rules, before the app sends heartbeats",
    )
    HEARTBEAT_NOT_TAKEN = _warning_of_entities(
        "The rules of the source do not select the heartbeats of the task: every one is reported as missed.",
        "declare the rule in the task, and run `busway apply`, which lets it select heartbeats too",
    )

    # Editors
    SLOW_PATTERN = _warning(
        "A text of some dozen characters, which a sender can choose, takes this regular expression longer than a "
        "message may take (`limits.edit_time`). Good messages may be rejected as well.",
        "let each repetition begin or end with a character that it does not contain: `^[a-z]+(-[a-z]+)*$` instead of "
        "`^([a-z]+-?)*$`; or limit the length with `maxLength` and check the rest elsewhere",
    )

    # The host
    HOLD_NEAR_TIMEOUT = _error(
        "The task may hold a batch for as long as the host lets a function run. At `functionTimeout` the host kills "
        "the worker process with all tasks that run in it, and their batches are delivered again.",
        "lower `limits.hold`, or raise `functionTimeout` in host.json: it must be at least five minutes longer",
    )
    HOLD_NEAR_RENEWAL = _error(
        "The task may hold a message for longer than the host renews its lock (`dispatch: single`). The message is "
        "then delivered again while the first delivery still waits, and is sent twice.",
        "lower `limits.hold`, or raise `maxAutoLockRenewalDuration` in host.json: it must be at least five minutes "
        "longer",
    )
    CALLS_REORDER_SESSION = _error(
        "With `dispatch: single`, several calls for one session run side by side and may begin in another order than "
        "its messages have.",
        "set `maxConcurrentCallsPerSession` in host.json to 1",
    )
    PREFETCH_BOUNDS_BATCH = _warning(
        "`prefetchCount` limits the messages that are received and not yet settled, so no batch is larger than it.",
        "set `prefetchCount` to 0, or to at least `maxMessageBatchSize`",
    )
    HOST_DECODES_QUEUES = _error(
        "The host decodes the messages of storage queues itself, and moves every text that is not base64 to the "
        "poison queue.",
        "set `extensions.queues.messageEncoding` in host.json to `none`",
    )
    SECOND_TELEMETRY = _warning(
        "The worker loads OpenTelemetry of its own: log lines are sent twice, and the app's metrics may meet other "
        "providers.",
        "remove `telemetryMode` from host.json",
    )
    POISON_AFTER_FEW = _warning(
        "The host moves a message of a storage queue to the poison queue after few failed deliveries, such as those "
        "in an outage of the target.",
        "set `extensions.queues.maxDequeueCount` in host.json to 1000",
    )


CHECKS = [check for check in vars(Checks).values() if isinstance(check, Check)]
