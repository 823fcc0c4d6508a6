"""The parts of a message that arrived: of a split message, two copies of one part are not two parts."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses


def arrived_parts(by_task: Column) -> Column:
    """
    Return how many parts of a message arrived, by the taps where they must see the copies, else by the task.

    Shape:   *by_task* are the parts that arrived where no tap must see them.
    """
    known = F.filter("due_at_tap", lambda place: place["identity"].isNotNull())
    kinds = F.array_distinct(F.transform(known, _kind))
    seen = F.transform("copies_watched", _kind)
    matched = F.aggregate(
        kinds, F.lit(0), lambda total, kind: total + F.least(_number(known, kind), _number("copies_watched", kind))
    )
    # A part that was sent twice may have got other content or another target: both copies are one part.
    by_tap = F.transform(
        F.filter(known, lambda place: F.array_contains(seen, _kind(place))), lambda place: place["part"]
    )
    recorded = F.least(matched + F.size(by_task), F.size(F.array_union(by_tap, by_task)))
    # A copy that is like no part is an altered one, or one whose `sent` record is lost. One more copy of a part is no
    # copy of another part that was only remembered: parts differ.
    others = F.size(F.array_except(seen, kinds))
    unrecorded = F.size(F.array_distinct(F.transform("copies_unwatched", _kind))) - F.size(by_task)
    return recorded + others + F.greatest(unrecorded, F.lit(0))


def _kind(place: Column) -> Column:
    return F.struct(place["target"].alias("target"), place["identity"].alias("identity"))


def _number(places: Column | str, kind: Column) -> Column:
    return F.size(F.filter(places, lambda place: _kind(place) == kind))
