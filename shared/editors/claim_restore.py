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
from shared.protocols import EditedTogether, Outcome
from shared.stores.blobs import Blob, Blobs, TooLarge, answered_within, some_at_once

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
    larger than allowed, or in another container than the one named here: no other address is contacted. While the
    storage is unavailable, the messages stay at the source.
    """

    options: ClaimRestoreOptions = Field(alias="claim-restore")

    def editor(self, task: TaskFacts, /) -> "ClaimRestore":
        """Return the editor with these options."""
        return ClaimRestore(self.options.open(task, "claim-restore"), self.options)


class ClaimRestore:
    """Replaces claims by bodies."""

    name = "claim-restore"
    joins = False

    def __init__(self, blobs: Blobs, options: ClaimRestoreOptions) -> None:
        """Read bodies from *blobs*."""
        self._blobs = blobs
        self._limit = options.max_bytes
        self._deletes = options.delete
        self._open: deque[tuple[Counter[Arrival], list[tuple[Arrival, str]]]] = deque(maxlen=_MOST_OPEN)

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return the messages with their bodies."""
        results: list[EditedTogether] = [(message,) for message in messages]
        claims: dict[int, Claim] = {}
        for index, message in enumerate(messages):
            try:
                claim = claim_of(message)
                if claim is not None:
                    claims[index] = self._allowed(claim)
            except MessageRejected as error:
                results[index] = self._rejection(error)
        if not claims:
            return results
        found = await self._download(list(claims.values()), timeout_seconds)
        restored = []
        for (index, claim), content in zip(claims.items(), found, strict=True):
            try:
                edited = messages[index].copy()
                restore(edited, claim, _present(content))
            except MessageRejected as error:
                results[index] = self._rejection(error)
            else:
                results[index] = (edited,)
                restored.append((edited.arrival, claim.blob))
        if self._deletes:
            self._open.append((Counter(message.arrival for message in messages), restored))
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

    def _allowed(self, claim: Claim) -> Claim:
        """Return *claim* if it may be restored; its address is compared and never contacted."""
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

    def _rejection(self, error: MessageRejected) -> MessageRejected:
        return MessageRejected(error.reason, f"{self.name}: {error.description}")


def _present(found: Blob | TooLarge | None) -> bytes:
    if found is None:
        raise MessageRejected("ClaimMissing", "the blob that it claims is missing, it may have been deleted")
    if isinstance(found, TooLarge):
        raise MessageRejected("ClaimAltered", f"the blob has {found.size} bytes, more than were stored")
    return found.content
