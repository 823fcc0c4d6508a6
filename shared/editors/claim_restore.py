"""The claim-restore editor: bodies from blob storage return to their messages."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from shared.editors.options import Step, TaskFacts
from shared.editors.state.claims import Claim, claim_of, restore
from shared.editors.state.store import ContainerName, Store
from shared.errors import MessageRejected
from shared.message.arrival import Arrival
from shared.message.message import Message
from shared.protocols import BATCH_BYTES, EditedTogether, Outcome, Postponed
from shared.stores.blobs import Blob, Blobs, TooLarge, answered_within, some_at_once
from shared.time_limit import DEFAULT_SECONDS, TimeLimit

# Deliveries that are not settled yet; blobs of forgotten ones are not deleted.
_MOST_OPEN = 1000


class ClaimRestoreOptions(Store):
    """Where bodies are, and whether they are deleted."""

    container: ContainerName = "busway-claims"
    """Container in the storage account; a claim for another container is rejected."""
    max_bytes: Annotated[int, Field(ge=0, le=1024 * 1024 * 1024)] = 100 * 1024 * 1024
    """Largest body in bytes; a claim for a larger one is rejected."""
    delete: bool = False
    """Whether to delete a blob after its message was sent; a later copy of the message is then rejected."""


class ClaimRestoreStep(Step):
    """
    Restores bodies that `claim-check` has stored as blobs; a message without a claim stays as it is.

    The size and the SHA-256 of the blob must match the claim. A message is rejected if its blob is missing, altered,
    larger than allowed, or in another container than the one named here: no other address is contacted.
    """

    options: ClaimRestoreOptions = Field(alias="claim-restore")

    def editor(self, task: TaskFacts, /) -> "ClaimRestore":
        """Return the editor with these options."""
        return ClaimRestore(self.options.open(task, "claim-restore"), self.options, task.edit_seconds)


class ClaimRestore:
    """Replaces claims by bodies."""

    name = "claim-restore"
    joins = False

    def __init__(self, blobs: Blobs, options: ClaimRestoreOptions, edit_seconds: float = DEFAULT_SECONDS) -> None:
        """Read bodies from *blobs*; each message may take *edit_seconds*."""
        self._time_limit = TimeLimit(edit_seconds)
        self._blobs = blobs
        self._limit = options.max_bytes
        self._deletes = options.delete
        self._open: deque[tuple[Counter[Arrival], list[tuple[Arrival, str]]]] = deque(maxlen=_MOST_OPEN)

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return the messages with their bodies."""
        results: list[EditedTogether] = [(message,) for message in messages]
        claims: dict[int, Claim] = {}
        size = 0
        for index, claim in enumerate(await self._time_limit.each(self._claim, messages)):
            if isinstance(claim, MessageRejected):
                results[index] = claim
            elif claim is not None:
                size += claim.size
                if claims and size > BATCH_BYTES:
                    results[index:] = [Postponed()] * (len(messages) - index)
                    break
                claims[index] = claim
        if not claims:
            return results
        contents = iter(await self._download(list(claims.values()), timeout_seconds))
        waiting = iter(claims.values())
        edited = await self._time_limit.each(
            lambda message: _restored(message, next(waiting), next(contents)), [messages[index] for index in claims]
        )
        restored = []
        for (index, claim), each in zip(claims.items(), edited, strict=True):
            if isinstance(each, MessageRejected):
                results[index] = each
            else:
                results[index] = (each,)
                restored.append((each.arrival, claim.blob))
        if self._deletes:
            ended = zip(messages, results, strict=True)
            taken = Counter(message.arrival for message, result in ended if not isinstance(result, Postponed))
            self._open.append((taken, restored))
        return results

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        """Delete the blobs of sent messages, when no message of their delivery is left at the source."""
        if not self._open:
            return
        ended = Counter(arrival for arrival, _ in outcomes)
        unsent = {arrival for arrival, outcome in outcomes if outcome is not Outcome.SENT}
        over = [each for each in self._open if each[0] <= ended]
        names = {name for _, restored in over for arrival, name in restored if arrival not in unsent}
        async with answered_within(timeout_seconds, self._blobs.url):
            await some_at_once(map(self._blobs.delete, names))
        self._open = deque((each for each in self._open if each not in over), maxlen=_MOST_OPEN)

    def _claim(self, message: Message) -> Claim | None:
        """Return the claim in a message if it may be restored; its address is compared and never contacted."""
        claim = claim_of(message)
        if claim is None:
            return None
        if claim.container.rstrip("/").lower() != self._blobs.url.lower():
            raise MessageRejected("ForeignClaim", f"claims a blob of another container than {self._blobs.url}")
        if claim.size > self._limit:
            raise MessageRejected("BodyTooLarge", f"claims {claim.size} bytes, expected at most {self._limit}")
        return claim

    async def _download(self, claims: Sequence[Claim], timeout_seconds: float) -> list[Blob | TooLarge | None]:
        async def download(claim: Claim) -> Blob | TooLarge | None:
            found = await self._blobs.read(claim.blob, limit=claim.size)
            return found if isinstance(found, Blob | TooLarge) else None

        async with answered_within(timeout_seconds, self._blobs.url):
            return await some_at_once(map(download, claims))


def _restored(message: Message, claim: Claim, found: Blob | TooLarge | None) -> Message:
    """Return a copy of *message* with its body; raises MessageRejected."""
    if found is None:
        raise MessageRejected("ClaimMissing", "the blob that it claims is missing, it may have been deleted")
    if isinstance(found, TooLarge):
        raise MessageRejected("ClaimAltered", f"the blob has {found.size} bytes, more than were stored")
    edited = message.copy()
    restore(edited, claim, found.content)
    return edited
