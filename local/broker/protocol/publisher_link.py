"""Links that a client sends on to a queue or topic."""

from local.broker.core.content import read_batch, read_content
from local.broker.core.entities import Queue, Topic
from local.broker.protocol.incoming_link import BATCH_FORMAT, IncomingLink
from local.broker.protocol.interfaces import LinkSession
from local.broker.protocol.performatives import Attach


class PublisherLink(IncomingLink):
    """A sender to a queue or topic."""

    def __init__(self, session: LinkSession, attach: Attach, entity: Queue | Topic, max_message_size: int) -> None:
        super().__init__(session, attach, max_message_size)
        self._entity = entity

    def accept(self, message: bytes, message_format: int) -> None:
        """Publish a message, or a batch as a whole."""
        entity = self._entity
        if message_format == BATCH_FORMAT:
            contents = [read_content(each) for each in read_batch(message)]
        else:
            contents = [read_content(message)]
        for content in contents:
            entity.check(content)
        for content in contents:
            entity.incoming.accept(content)
