"""Links on which a client sends to a queue or topic."""

from typing import TYPE_CHECKING

from local.broker.core.content import read_batch, read_content
from local.broker.core.entities import Queue, Topic
from local.broker.protocol.incoming_link import BATCH_FORMAT, IncomingLink
from local.broker.protocol.performatives import Attach

if TYPE_CHECKING:
    from local.broker.protocol.session import Session


class PublisherLink(IncomingLink):
    """A sender to a queue or topic."""

    def __init__(self, session: "Session", attach: Attach, entity: Queue | Topic, max_message_size: int) -> None:
        super().__init__(session, attach, max_message_size)
        self._entity = entity

    def accept(self, message: bytes, message_format: int) -> None:
        """Publish a message, or all messages of a batch or none."""
        entity = self._entity
        if message_format == BATCH_FORMAT:
            contents = [read_content(each) for each in read_batch(message)]
        else:
            contents = [read_content(message)]
        for content in contents:
            entity.check(content)
        for content in contents:
            entity.incoming.accept(content)
