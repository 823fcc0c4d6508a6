"""The host.json of the app that a configuration folder belongs to."""

from pathlib import Path

from host.settings import load_host_options
from shared.review import HostFile

HOST_FILE = "host.json"


def host_file_above(folder: Path) -> HostFile | None:
    """Return what the host.json nearest above *folder* says, None without one; raises ConfigError if it is invalid."""
    app = next((parent for parent in folder.resolve().parents if (parent / HOST_FILE).is_file()), None)
    if app is None:
        return None
    options = load_host_options(app)
    return HostFile(
        HOST_FILE,
        options.function_timeout,
        options.service_bus.max_message_batch_size,
        options.event_hubs.max_event_batch_size,
        options.service_bus.prefetch_count,
        options.service_bus.max_auto_lock_renewal_duration,
        options.service_bus.max_concurrent_calls_per_session,
        options.service_bus.max_concurrent_sessions,
        options.queues.message_encoding,
        options.queues.max_dequeue_count,
        options.telemetry_mode,
    )
