"""
Messages and sessions processed once across regions, and the marks from which a consumer resumes elsewhere.

`TableStore` is in `busway_clients.tables` and `.aio.tables`, as it needs `busway-clients[tables]`.
"""

from busway_clients._sync.rows import SqliteStore as SqliteStore
from busway_clients._sync.sessions.consumer import JournaledConsumer as JournaledConsumer
from busway_clients._sync.sessions.journal import Bookmarks as Bookmarks
from busway_clients._sync.sessions.journal import Journal as Journal
from busway_clients.errors import Conflict as Conflict
from busway_clients.errors import JournalError as JournalError
from busway_clients.errors import JournalMalformed as JournalMalformed
from busway_clients.errors import JournalMismatch as JournalMismatch
from busway_clients.errors import JournalRefused as JournalRefused
from busway_clients.errors import LeaseLost as LeaseLost
from busway_clients.errors import Unprocessable as Unprocessable
from busway_clients.sessions.delivery import Delivery as Delivery
from busway_clients.sessions.entries import Entry as Entry
from busway_clients.sessions.entries import State as State
from busway_clients.sessions.leases import Lease as Lease
from busway_clients.sessions.leases import Record as Record
from busway_clients.sessions.marks import Mark as Mark
from busway_clients.sessions.marks import Seen as Seen
from busway_clients.sessions.marks import joined as joined
from busway_clients.sessions.marks import seen_event as seen_event
from busway_clients.sessions.marks import seen_message as seen_message
from busway_clients.sessions.settings import Settings as Settings
from busway_clients.sessions.settings import Source as Source
from busway_clients.sessions.translation import Place as Place
from busway_clients.sessions.translation import Translation as Translation
