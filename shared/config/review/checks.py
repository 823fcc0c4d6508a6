"""
Every check of a review: its name, how bad a finding is, what it means, how to mend it.

An error is what surely makes messages go round for ever, get lost or stay behind, whatever they hold; all else is a
warning. docs/checks.md is this table.
"""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of finding; `needs_entities` where the task files alone do not tell."""

    name: str
    severity: Severity
    meaning: str
    remedy: str
    needs_entities: bool = False


CHECKS: list[Check] = []


def _check(severity: Severity, name: str, meaning: str, remedy: str, *, needs_entities: bool = False) -> Check:
    check = Check(name, severity, meaning, remedy, needs_entities)
    CHECKS.append(check)
    return check


_ERROR, _WARNING = Severity.ERROR, Severity.WARNING

# Loops

ENDLESS_LOOP = _check(
    _ERROR,
    "endless-loop",
    "Messages come back to where they were and are carried again, for ever: no task on the way prevents loops, and no "
    "rule stops what has been carried before.",
    "remove `loop_prevention: off` from one of the tasks, or give each subscription on the way a rule such as "
    "`replication IS NULL` with the action `SET replication = 1`",
)
LOOP_THROUGH_DEAD_LETTERS = _check(
    _ERROR,
    "loop-through-dead-letters",
    "A message that no consumer can do anything with travels between dead-letter queues for ever.",
    "put a route before the others that takes what has failed twice: `when: \"[repl-dlq-source] LIKE '%;%'\"` to an "
    "auxiliary queue that no task takes from",
)
LOOP_THROUGH_REJECTS = _check(
    _ERROR,
    "loop-through-rejects",
    "What one task rejects, others carry back to where it came from, to be rejected again, for ever.",
    "give `rejects` a queue that no task takes from",
)
POSSIBLE_LOOP = _check(
    _WARNING,
    "possible-loop",
    "Messages can come back to where they were, and whether a rule stops them there cannot be told.",
    "remove `loop_prevention: off` from one of the tasks, or declare the rule of each subscription in its task",
)
ONE_BIT_MARK = _check(
    _ERROR,
    "one-bit-mark",
    "A mark that says only that a message has been carried stops it at its second site: in a ring of three sites or a "
    "hub with spokes, the others never get it.",
    "select by the path instead of the mark: remove the rule and let `loop_prevention` stop messages that come back, "
    "or connect every site with every other",
)
MARK_ENDS_CHAIN = _check(
    _WARNING,
    "mark-ends-chain",
    "What another task has marked on its way here, the rule of this task's source does not select.",
    "use marks of different names on the two ways, or remove the rule if this task is to carry on what comes there",
)
GUARD_WITHHOLDS = _check(
    _ERROR,
    "guard-withholds",
    "Messages are taken on to another entity of a site that they have left before. That is no loop, but the guard "
    "withholds all that comes to a site again.",
    "set `loop_prevention: off` in this task, or let the first task send to the last entity directly",
)
HOPS_TOO_FEW = _check(
    _ERROR,
    "hops-too-few",
    "Messages reach an entity only by more hops than this task allows.",
    "raise `loop_prevention.max_hops`",
)
ARRIVES_TWICE = _check(
    _WARNING,
    "arrives-twice",
    "Every message reaches an entity by two ways, and its consumers get it twice.",
    "remove one of the ways; in a mesh give each source the rule `replication IS NULL` with the action "
    "`SET replication = 1`; or turn on duplicate detection at the target",
)
TOO_MANY_WAYS = _check(
    _WARNING,
    "too-many-ways",
    "The tasks connect so many entities in so many ways that not all of them were followed.",
    "check parts of the tasks in folders of their own, and leave `loop_prevention` on",
)
TWO_NAMES_OF_A_NAMESPACE = _check(
    _WARNING,
    "two-names-of-a-namespace",
    "Two connections with one app setting have different site names, so that repl-path takes one site for two.",
    "give both connections the same `site`",
)
HISTORY_CHANGED = _check(
    _WARNING,
    "history-changed",
    "An action changes a property in which Busway keeps a message's way; loop prevention and `[repl-dlq-source]` "
    "conditions then see another way.",
    "keep the action off the properties that begin with repl-",
)

# Rules

RULE_NEVER_TRUE = _check(
    _ERROR,
    "rule-never-true",
    "No message can satisfy the rule of the source, so the task carries nothing.",
    "mend the condition; a comparison with a missing property or with another type is unknown, never true",
)
RULE_NEEDS_ITS_MARK = _check(
    _ERROR,
    "rule-needs-its-mark",
    "The rule compares a mark that only its own action sets. Without the mark the comparison is unknown, not true, so "
    "no message is ever selected: `replication <> 1` is the usual case.",
    "write `replication IS NULL`, with the mark's own name",
)
FILTER_WITHHOLDS_ALL = _check(
    _ERROR,
    "filter-withholds-all",
    "No message can satisfy the filter editor, so all are completed and none is sent.",
    "mend the condition; a comparison with a missing property or with another type is unknown, never true",
)
MARK_OF_ANOTHER_TYPE = _check(
    _WARNING,
    "mark-of-another-type",
    "A condition compares a property with a value of another type than every action sets it to; '1' is not 1, and the "
    "comparison is unknown.",
    "write both the same way, with or without quotes",
)
DEFAULT_BESIDE_ACTION = _check(
    _WARNING,
    "default-beside-action",
    "The subscription has a rule that selects everything beside one with an action: each message is copied twice, once "
    "marked and once not.",
    "delete the rule $Default from the subscription",
    needs_entities=True,
)
RULE_NOT_DEPLOYED = _check(
    _WARNING,
    "rule-not-deployed",
    "The subscription's rules are not the rule that the task declares.",
    "create the declared rule on the subscription and delete the others, or declare what is there",
    needs_entities=True,
)

# Routes

UNREACHABLE_ROUTE = _check(
    _WARNING,
    "unreachable-route",
    "No message can come to this route, or none that does can satisfy it: those before it take them all.",
    "put it before them, or remove it",
)
UNROUTED_MESSAGES = _check(
    _WARNING,
    "unrouted-messages",
    "A message that satisfies no route is completed at the source and sent nowhere.",
    "add a last route without `when`; if the rest is to be dropped, say so with a filter under `editors`",
)
RANDOM_ID = _check(
    _WARNING,
    "random-id",
    "The route gives a message another id each time it is tried, so that no duplicate detection knows it again.",
    "leave the id as it is: Busway gives messages without one an id that stays the same",
)

# Sources and rejects

COMPETING_TASKS = _check(
    _ERROR,
    "competing-tasks",
    "Two tasks take from the same queue, subscription or consumer group, and each gets a part of the messages.",
    "make it one task with two routes, or give the second a subscription or consumer group of its own",
)
SOURCE_FORWARDS = _check(
    _ERROR,
    "source-forwards",
    "The source forwards its messages to another entity by itself, so there is nothing to take from it.",
    "turn off auto-forwarding, or take from where it forwards to",
    needs_entities=True,
)
ENTITY_MISSING = _check(
    _ERROR,
    "entity-missing",
    "The namespace has no such queue, topic, subscription, hub or consumer group.",
    "create it, or mend its name",
    needs_entities=True,
)
PARTITION_COUNTS = _check(
    _WARNING,
    "partition-counts-differ",
    "The task keeps partitions, and the target's hub has more than the source's: the rest stay empty, and what an "
    "application sends to the target by key may go to another partition than the copies with that key.",
    "give both hubs the same number of partitions, or leave `partition` out so that the key decides",
    needs_entities=True,
)
PARTITION_MISSING = _check(
    _ERROR,
    "partition-missing",
    "The task names, or keeps, a partition that the hub does not have.",
    "use partitions that are there; where the numbers of partitions differ, leave `partition` out so that the key "
    "decides",
    needs_entities=True,
)
BINARY_PROPERTIES = _check(
    _WARNING,
    "binary-properties",
    "Azure's Functions host cannot hand events with binary, list or array properties to the raw trigger. A batch of "
    "such an event fails before Busway is called and is tried again for ever: nothing is lost, and its partition "
    "stands still.",
    "if no sender uses such properties, say `binary_properties: false` in the source; if one does, set "
    "`trigger: stock` in the task, which gets binaries as base64 text. An event with a map as a property goes through "
    "no trigger at all",
)
STOCK_TRIGGER = _check(
    _WARNING,
    "stock-trigger",
    "The stock trigger hands messages over with the property types of JSON, without most of their header, and refuses "
    "bodies that are not data; those of a queue end in its dead-letter queue, those of a hub hold up their partition.",
    "remove `trigger: stock`, unless a hub's events have binary properties or the host has no SDK types for triggers",
)
MISSING_REJECTS = _check(
    _WARNING,
    "missing-rejects",
    "Without `rejects`, a message at fault goes to the source's dead-letter queue, among what others have put there; "
    "if Busway may not settle it there, it brings its whole batch back until the source gives all of it up.",
    "add `rejects` with a queue of the source's site",
)
REJECTS_AMONG_COPIES = _check(
    _WARNING,
    "rejects-among-copies",
    "What the task rejects goes to the same entity as what it copies, and the consumers there get both.",
    "give `rejects` a queue of its own",
)

# Sessions

SESSIONS_MISMATCH = _check(
    _ERROR,
    "sessions-mismatch",
    "The task says `sessions` of a source that requires none, or does not say it of one that does; the host cannot "
    "take from it.",
    "set `sessions` as the entity has it",
    needs_entities=True,
)
ORDER_LOST = _check(
    _WARNING,
    "order-lost",
    "The source has sessions, but nothing at the target requires them: the session id arrives, the order within it is "
    "not kept for consumers.",
    "require sessions at the target's queue or subscription",
)
SESSION_ID_MISSING = _check(
    _WARNING,
    "session-id-missing",
    "The target requires sessions and the source does not: messages without a session id are rejected, or "
    "dead-lettered by the subscription.",
    "require sessions at the source, set the id in the route, `action: \"SET sys.SessionId = 'all'\"`, or send "
    'elsewhere what has none, `when: "sys.SessionId IS NOT NULL"`; of a hub the partition key becomes the session id, '
    '`when: "sys.PartitionKey IS NOT NULL"`',
)
REJECTS_NEED_SESSION = _check(
    _WARNING,
    "rejects-need-session",
    "The queue for rejected messages requires sessions; one that was rejected for want of a session id cannot go there "
    "either, and its batch is stuck.",
    "use a queue without sessions",
    needs_entities=True,
)

# Lives

EXPIRED_DEAD_LETTERS = _check(
    _ERROR,
    "expired-dead-letters",
    "In a dead-letter queue nothing expires, but lives run on: `ttl: remaining` completes unsent all that died of old "
    "age, and all that waited there longer than they had to live.",
    "use `ttl: keep` or a stamp",
)
TTL_WITHOUT_EFFECT = _check(
    _WARNING,
    "ttl-without-effect",
    "Event Hubs has no time to live: events come without one, and a copy in a hub does not use one.",
    "remove `ttl`; from a hub to a queue or topic, use a stamp",
)
TTL_CUT = _check(
    _WARNING,
    "ttl-cut",
    "The target's default time to live is shorter than what the task stamps or the source grants, and Service Bus cuts "
    "to the shorter without a word.",
    "raise the target's default, or stamp at most that",
    needs_entities=True,
)

# Deliveries

NO_DUPLICATE_DETECTION = _check(
    _WARNING,
    "no-duplicate-detection",
    "The target does not detect duplicates: a message whose acknowledgement was lost arrives there twice.",
    "create the target with duplicate detection, or let its consumers take a message twice",
    needs_entities=True,
)
SHORT_DUPLICATE_WINDOW = _check(
    _WARNING,
    "short-duplicate-window",
    "The source delivers a message again for longer (lock duration times deliveries) than the target remembers its id.",
    "lengthen the target's window, or shorten the source's lock or its number of deliveries",
    needs_entities=True,
)
RESENT_AS_DUPLICATE = _check(
    _ERROR,
    "resent-as-duplicate",
    "The task sends dead-lettered messages back to the entity they come from, which detects duplicates and drops, "
    "without a word, every id that it has seen within its window.",
    "send them to another entity, or set another id in the route: "
    "`action: \"SET sys.MessageId = sys.MessageId + '-again'\"`",
    needs_entities=True,
)
SMALLER_MESSAGES = _check(
    _WARNING,
    "smaller-messages",
    "The target takes smaller messages than the source; larger ones are rejected.",
    "raise the target's maximum message size",
    needs_entities=True,
)
