"""The decision whether a mark covers a message, for a consumer that continues at another site."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum

from busway_clients.errors import JournalRefused
from busway_clients.sessions.marks import Mark, Position, Seen, id_of, view_name, view_parts


class Place(Enum):
    """Whether a message is covered by a mark; process an UNSURE one again, since it may not have been processed."""

    DONE = "done"
    UNSURE = "unsure"
    NEXT = "next"


@dataclass(frozen=True)
class Translation:
    """
    A mark, for a consumer that continues at another site.

    *partitions*: the partitions of each site's hub. While the mark lacks a position for one of them, no message is
    considered processed because of its time. Omit it for Service Bus. *numbers_agree*: whether the numbers in a copy's
    repl-sequence are those that a consumer at the origin sees. That holds for hubs where copies keep their partition
    (`partition: keep`, or all events have keys and partition counts are equal), and for subscriptions that select the
    same messages.
    """

    mark: Mark
    partitions: Mapping[str, Collection[str]] = field(default_factory=dict)
    numbers_agree: bool = False
    allowance_seconds: float = 5.0
    quiet_until: Mapping[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for site, until in self.quiet_until.items():
            if until.tzinfo is None:
                raise JournalRefused(f"quiet_until of {site} has no time zone, expected one")

    def place(self, seen: Seen) -> Place:
        """Return whether *seen* has been processed, at any site."""
        # Copies keep their partition if numbers agree.
        views = self._views(seen.origin, seen.partition if self.numbers_agree else None)
        positions = [position for view in views.values() for position in view.values()]
        if self._is_known(seen, positions, seen.content):
            return Place.DONE
        own = self.mark.positions.get(seen.view)
        if own is not None and seen.is_copy and own.has_read(seen):
            return Place.DONE
        original = None
        if self.numbers_agree or not seen.is_copy:
            original = self.mark.positions.get(view_name(seen.origin, seen.origin, seen.partition))
        if seen.number is not None and original is not None and original.number is not None:
            if seen.number > original.number:
                views.pop(seen.origin, None)
            elif self._is_reached(seen, original):
                return Place.DONE
        elif seen.number is not None and self.numbers_agree:
            views.pop(seen.origin, None)
        if seen.is_copy and own is not None and own.number is not None and seen.read_number is not None:
            # It was not read here before.
            views.pop(seen.site, None)
        if not any(views.values()):
            return Place.NEXT
        if seen.enqueued is None:
            return Place.UNSURE
        return self._by_time(seen, seen.enqueued, views)

    def _is_reached(self, seen: Seen, original: Position) -> bool:
        """Return whether *original* has come to the time of *seen*; an entity created again has its numbers again."""
        reached = original.enqueued
        return seen.enqueued is not None and reached is not None and seen.enqueued <= reached + self.allowance_seconds

    def _is_known(self, seen: Seen, positions: Collection[Position], content: str) -> bool:
        """Return whether *seen* is among the last ids, with this *content* and at about its time."""
        if seen.message_id is None or seen.enqueued is None:
            return False
        name, time = id_of(seen.message_id) + content, seen.enqueued
        return any(
            known.startswith(name) and abs(at - time) <= self.allowance_seconds
            for position in positions
            for known, at in position.ids
        )

    def _by_time(self, seen: Seen, enqueued: float, views: Mapping[str, Mapping[str, Position]]) -> Place:
        allowance = self.allowance_seconds
        is_after_all = True
        for site, view in views.items():
            # Numbers and times of a hub are per partition: one without a position may not have been processed at all.
            times = [each.enqueued for each in view.values() if each.enqueued is not None]
            is_whole = self.numbers_agree or len(times) == len(self.partitions.get(site, ("",)))
            # Of copies, the times are those of their arrival: an earlier message may not have arrived.
            if site == seen.origin and times and is_whole and enqueued < min(times) - allowance:
                return Place.DONE
            known_by_id = seen.message_id is not None and all(
                each.since is None or each.since < enqueued for each in view.values()
            )
            # Editors on the way change the content of a copy, but not its id.
            if known_by_id and not self._is_known(seen, view.values(), ""):
                continue
            if any(enqueued <= time + allowance for time in times):
                is_after_all = False
        return Place.NEXT if is_after_all else Place.UNSURE

    def start(self, site: str) -> dict[str, datetime | str]:
        """
        Return the starting_position of each partition of *site*'s hub, for `EventHubConsumerClient.receive`.

        A copy arrives later than its original, so every copy that was enqueued before the earliest unprocessed time has
        been processed. The allowance is subtracted for differences between clocks. Skip each event for which `place`
        returns DONE. If a position of any partition is missing, reading starts at the beginning ("-1"), also for
        events of *site* itself, unless *quiet_until* covers them.
        """
        partitions = self.partitions.get(site)
        if not partitions:
            raise JournalRefused(f"the partitions of {site} are missing, expected those of its hub")
        # Also those of which nothing was processed yet.
        origins = {view_parts(view)[0] for view in self.mark.positions} | {site, *self.partitions}
        starts: dict[str, datetime | str] = {}
        for partition in partitions:
            done = [self._done_until(origin, site, partition) for origin in sorted(origins)]
            known = [each for each in done if each is not None]
            if len(known) < len(done):
                starts[partition] = "-1"
            else:
                starts[partition] = datetime.fromtimestamp(min(known), UTC) - timedelta(seconds=self.allowance_seconds)
        return starts

    def _done_until(self, origin: str, site: str, partition: str) -> float | None:
        """Return the time up to which everything of *origin* in *partition* of *site*'s hub is processed, or None."""
        reached: list[float] = []
        here = self.mark.positions.get(view_name(origin, site, partition))
        if here is not None and here.enqueued is not None:
            reached.append(here.enqueued)
        times = [each.enqueued for each in self._views(origin).get(origin, {}).values() if each.enqueued is not None]
        if len(times) == len(self.partitions.get(origin, ("",))):
            reached.append(min(times))
        if origin in self.quiet_until:
            reached.append(self.quiet_until[origin].timestamp())
        return max(reached, default=None)

    def _views(self, origin: str, partition: str | None = None) -> dict[str, dict[str, Position]]:
        """Return the positions of messages from *origin* by the site where they are read, of all partitions or one."""
        views: dict[str, dict[str, Position]] = {}
        for view, position in self.mark.positions.items():
            first, site, read = view_parts(view)
            if first == origin:
                views.setdefault(site, {}).update({view: position} if partition in (None, read) else {})
        return views
