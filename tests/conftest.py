import os
from pathlib import Path

import pytest
from hypothesis import settings

AZURE_SETTINGS = ("BUSWAY_TEST_WEST", "BUSWAY_TEST_EAST")

HERE = Path(__file__).parent

# With several workers these start first, because a long file at the end leaves the others idle. Spark needs a core and
# a gigabyte: its files alternate with files that mostly wait.
LONGEST_FILES = (
    "end_to_end/test_patterns_page_first_half.py",
    "end_to_end/test_patterns_page_second_half.py",
    "broker/test_outages.py",
    "faults/test_cuts.py",
    "end_to_end/test_demo.py",
    "end_to_end/test_patterns_streams.py",
    "faults/test_outages.py",
    "faults/test_kills.py",
    "jobs/test_verdicts.py",
    "end_to_end/test_failover_page.py",
    "end_to_end/test_repair.py",
    "broker/test_clients_without_a_token.py",
    "clients/receivers/test_deduplicating.py",
    "clients/receivers/test_claims.py",
    "end_to_end/test_patterns_copies.py",
    "end_to_end/test_host_lifecycle.py",
    "clients/sessions/test_guaranteed_ordering_page.py",
    "clients/senders/test_active.py",
    "clients/test_readme.py",
    "end_to_end/test_failover.py",
    "unit/editors/test_heartbeat.py",
    "jobs/test_report.py",
)

# These take minutes on two cores. `make spark` runs those of the nightly job, in the CI workflow too.
# `make faults` runs the scenarios of all faults.
SLOW = "BUSWAY_SLOW"
SLOW_FILES = (
    "jobs/test_bad_input.py",
    "jobs/test_windows.py",
    "jobs/test_verdicts.py",
    "faults/test_stops.py",
)
ALWAYS_RUN = "test_every_planted_message_is_found_and_no_other"

# A deadline per example would measure the machine and its neighbours, not the code.
settings.register_profile("busway", settings(), deadline=None)
settings.load_profile("busway")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        places = {HERE / name: place for place, name in enumerate(LONGEST_FILES)}
        items.sort(key=lambda item: places.get(item.path, len(places)))
    if SLOW not in os.environ:
        slow_files = {HERE / name for name in SLOW_FILES}
        slow = pytest.mark.skip(reason="takes minutes; make spark or make faults runs it")
        for item in items:
            if item.path in slow_files and not item.name.startswith(ALWAYS_RUN):
                item.add_marker(slow)
    missing = [name for name in AZURE_SETTINGS if not os.environ.get(name)]
    if not missing:
        return
    skip = pytest.mark.skip(reason=f"needs two live namespaces: {', '.join(missing)} not set")
    for item in items:
        if item.get_closest_marker("azure"):
            item.add_marker(skip)
