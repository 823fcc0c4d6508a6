"""Which messages are selected."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared.errors import MessageRejected
from shared.message.rule_properties import RuleProperties
from shared.resend.groups import group_of
from shared.resend.letters import Letter
from shared.resend.model import GroupChoice
from shared.rules.rule import SqlFilter


@dataclass(slots=True)
class Selection:
    """Conditions that a message has to meet, all of them; without any, every message is selected."""

    where: SqlFilter | None = None
    reason: str | None = None
    older_than: timedelta | None = None
    numbers: frozenset[int] | None = None
    limit: int | None = None
    session: str | None = None
    now: datetime | None = None
    group: GroupChoice | None = None
    unevaluated: int = 0
    """Messages for which `where` could not be evaluated; they are not selected."""
    _taken: int = 0

    @property
    def is_everything(self) -> bool:
        """Whether there is no condition."""
        return self.is_by_age and self.older_than is None

    @property
    def is_by_age(self) -> bool:
        """Whether there is no condition but the age."""
        conditions = (self.where, self.reason, self.numbers, self.limit, self.session, self.group)
        return all(condition is None for condition in conditions)

    @property
    def is_complete(self) -> bool:
        """Whether no further message can be selected."""
        return self.limit is not None and self._taken >= self.limit

    def takes(self, letter: Letter) -> bool:
        """Return whether a message is selected, and count it."""
        if self.is_complete or not self._meets(letter):
            return False
        self._taken += 1
        return True

    def _meets(self, letter: Letter) -> bool:
        is_other = (
            (self.numbers is not None and letter.number not in self.numbers)
            or (self.session is not None and letter.session_id != self.session)
            or (self.group is not None and group_of(letter) != self.group)
            or (self.reason is not None and letter.reason.lower() != self.reason.lower())
        )
        if is_other:
            return False
        if self.older_than is not None:
            latest = ((self.now or datetime.now(UTC)) - self.older_than).timestamp() * 1000
            if letter.enqueued_time is None or letter.enqueued_time > latest:
                return False
        if self.where is None:
            return True
        if letter.message is None:
            self.unevaluated += 1
            return False
        try:
            return self.where.matches(RuleProperties(letter.message))
        except MessageRejected:
            self.unevaluated += 1
            return False
