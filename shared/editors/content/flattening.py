"""Nested JSON as one object of dotted names."""

from shared.codecs.json import ExactJson
from shared.errors import MessageRejected

MOST_LEVELS = 100
# A name repeats the names around it, so few bytes can become many.
LARGEST_NAMES = 64 * 2**20


def flatten(value: ExactJson, separator: str) -> dict[str, ExactJson]:
    """
    Return each single value by its path of names and indexes, joined with *separator*.

    An empty object or array stays as it is. Raises MessageRejected for duplicate names, for nesting beyond MOST_LEVELS,
    and if all names together have more than LARGEST_NAMES characters.
    """
    flat: dict[str, ExactJson] = {}
    size = 0
    waiting: list[tuple[str, ExactJson, int]] = [("", value, 0)]
    while waiting:
        path, each, level = waiting.pop()
        if not isinstance(each, (dict, list)) or (not each and level):
            if path in flat:
                raise MessageRejected("NameTwice", "two values have the same name when the body is flattened")
            flat[path] = each
            continue
        if level == MOST_LEVELS:
            raise MessageRejected("NestedTooDeeply", f"the body is nested deeper than {MOST_LEVELS} levels")
        named = each.items() if isinstance(each, dict) else enumerate(each)
        inner = [(f"{path}{separator}{name}" if level else str(name), part, level + 1) for name, part in named]
        size += sum([len(name) for name, _, _ in inner])
        if size > LARGEST_NAMES:
            problem = f"the names of a flattened body take more than {LARGEST_NAMES} characters"
            raise MessageRejected("ResultTooLarge", problem)
        waiting += reversed(inner)
    return flat
