"""The facts about a message after an editor, and the condition that it satisfies to pass one."""

from functools import lru_cache

from shared.editors.filter import FilterStep
from shared.editors.partition import PartitionOptions, PartitionStep
from shared.editors.properties import PropertiesOptions, PropertiesStep
from shared.editors.validate import ValidateStep
from shared.review.known_properties import PARTITION_KEY, SESSION_ID, Facts, Key, Unknown, applied
from shared.rules import SqlFilter, parse_action, parse_filter
from shared.rules.syntax import Scope
from shared.tasks.steps import EditorStep

HISTORY = "repl-"
_CONTENT_TYPE: Key = (Scope.SYSTEM, "contenttype")
_KEPT = frozenset((SESSION_ID, PARTITION_KEY))


def is_history(key: Key) -> bool:
    """Return whether a property is one in which Busway keeps a message's path."""
    return key[0] is Scope.USER and key[1].startswith(HISTORY)


def filter_of(editor: EditorStep) -> SqlFilter | None:
    """Return a condition that every message that passes *editor* satisfies, None if unknown."""
    if isinstance(editor, FilterStep):
        return parsed_filter(editor.rule)
    if not isinstance(editor, ValidateStep) or not isinstance(editor.options.on_failure, str):
        return None
    system = [name for name in editor.options.required_properties or () if name.lower().startswith("sys.")]
    return parsed_filter(" AND ".join(f"{name} IS NOT NULL" for name in system)) if system else None


def after_editor(editor: EditorStep, facts: Facts) -> Facts:
    """Return the facts about a message that has passed *editor*."""
    if isinstance(editor, PropertiesStep):
        return _with_properties_edited(editor.options, facts)
    if isinstance(editor, PartitionStep):
        return _with_key(editor.options, facts)
    if not editor.keeps_properties:
        # An editor leaves history and ordering keys alone.
        return Facts({key: value for key, value in facts.known.items() if is_history(key) or key in _KEPT})
    changed = {(Scope.USER, name): Unknown.ANYTHING for name in editor.may_set()}
    known = {**facts.known, **changed}
    if not editor.keeps_content_type:
        known[_CONTENT_TYPE] = Unknown.ANYTHING
    return Facts(known, facts.others)


def _with_key(options: PartitionOptions, facts: Facts) -> Facts:
    if facts.of(PARTITION_KEY) not in (Unknown.ABSENT, Unknown.NOTHING):
        return facts
    is_sure = options.missing == "reject" and facts.of(SESSION_ID) is Unknown.ABSENT
    return facts.with_(PARTITION_KEY, Unknown.SOMETHING if is_sure else Unknown.ANYTHING)


def _with_properties_edited(options: PropertiesOptions, facts: Facts) -> Facts:
    known = dict(facts.known)
    others = facts.others if options.remove is None else Unknown.ANYTHING
    for key in [key for key in known if key[0] is Scope.USER and options.removes(key[1])]:
        known[key] = Unknown.ABSENT
    renamed = {old.lower(): new.lower() for old, new in (options.rename or {}).items()}
    known |= {(Scope.USER, old): Unknown.ABSENT for old in renamed}
    for old, new in renamed.items():
        moved, stays = facts.of((Scope.USER, old)), facts.of((Scope.USER, new))
        if moved is not Unknown.ABSENT:
            known[Scope.USER, new] = Unknown.ANYTHING if moved is Unknown.NOTHING else moved
        elif new not in renamed:
            known[Scope.USER, new] = stays
    changed = Facts(known, others)
    return changed if options.action is None else applied(parse_action(options.action), changed)


@lru_cache(maxsize=1024)
def parsed_filter(text: str) -> SqlFilter:
    """Return the filter in *text*, parsed once."""
    return parse_filter(text)
