import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

AZURE_SETTINGS = ("BUSWAY_TEST_WEST", "BUSWAY_TEST_EAST")

HERE = Path(__file__).parent
# Commands are slow beside seven other tests: what they wait for is no part of what they print.
os.environ.setdefault("BUSWAY_SILENCE_SECONDS", "60")

# With several workers these start first, because a long file at the end leaves the others idle. After the
# first one its worker runs all files of the nightly job, see `pytest_xdist_make_scheduler`.
LONGEST_FILES = (
    "tests/jobs/test_verdicts.py",
    "tests/jobs/test_replays.py",
    "tests/end_to_end/test_demo.py",
    "tests/end_to_end/test_patterns_page_commands.py",
    "tests/faults/test_holds.py",
    "tests/end_to_end/test_host_ends.py",
    "tests/end_to_end/test_failover_page.py",
    "tests/end_to_end/test_failover_alias.py",
    "tests/end_to_end/test_patterns_streams.py",
    "tests/wire/test_outages.py",
    "tests/faults/test_outages.py",
    "tests/faults/test_kills.py",
    "tests/faults/test_cuts.py",
    "tests/end_to_end/test_dead_letters.py",
    "tests/end_to_end/test_repair.py",
    "broker/tests/test_clients_without_a_token.py",
    "tests/clients/receivers/test_deduplicating.py",
    "tests/clients/receivers/test_claims.py",
    "tests/end_to_end/test_patterns_copies.py",
    "tests/end_to_end/test_host_lifecycle.py",
    "tests/clients/sessions/test_guaranteed_ordering_page.py",
    "tests/clients/senders/test_active.py",
    "tests/clients/test_readme.py",
    "tests/end_to_end/test_failover.py",
    "tests/end_to_end/test_smoke.py",
    "tests/end_to_end/test_losses.py",
    "tests/end_to_end/test_project.py",
    "tests/end_to_end/test_status.py",
    "tests/unit/editors/test_heartbeat.py",
)

# These take minutes on two cores. `make spark` runs those of the nightly job, in the CI workflow too.
# `make faults` runs the scenarios of all faults.
SLOW = "BUSWAY_SLOW"
SLOW_FILES = (
    "tests/jobs/test_bad_input.py",
    "tests/jobs/test_hidden_losses.py",
    "tests/jobs/test_windows.py",
    "tests/jobs/test_verdicts.py",
    "tests/jobs/test_replays.py",
    "tests/faults/test_stops.py",
    "tests/faults/test_amqp_poison.py",
    "tests/faults/test_kafka.py",
    "tests/faults/test_forward.py",
    "tests/faults/test_stopped_forward.py",
    "tests/faults/test_reconciled_kafka.py",
    "tests/faults/test_reconciled_queues.py",
    "tests/faults/test_storage_queues.py",
    "tests/faults/test_event_grid.py",
    "tests/faults/test_dead_letters.py",
    "tests/faults/test_evacuation.py",
    "tests/faults/test_replay.py",
    "tests/faults/test_upgrade.py",
    "tests/end_to_end/test_demo.py",
    "tests/end_to_end/test_slow_pages.py",
    "tests/end_to_end/test_pause.py",
    "tests/end_to_end/test_project.py",
    "tests/end_to_end/test_smoke.py",
    "tests/other_brokers/test_other_brokers.py",
    "tests/other_brokers/test_kafka.py",
    "tests/other_brokers/test_forward.py",
    "tests/other_brokers/test_page.py",
)
ALWAYS_RUN = (
    "test_every_planted_message_is_found_and_no_other",
    "test_a_loss_that_other_records_seem_to_explain_is_found",
    "test_all_expectations_hold_for_recorded_webhooks",
    "test_a_bad_line_in_a_file_is_reported_before_the_start",
    "test_messages_arrive_through_rules_sessions_topics_and_hubs_and_are_removed",
    "test_the_archive_is_the_release_before_this_one",
)

# A deadline per example would measure the machine and its neighbours, not the code.
settings.register_profile("busway", settings(), deadline=None)
settings.load_profile("busway")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one worker, and all files of the nightly job to the same one: Spark starts once."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415 - not installed with other versions of Spark

    class OneSpark(LoadFileScheduling):  # type: ignore[misc,unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return "tests/jobs" if nodeid.startswith("tests/jobs/") else str(super()._split_scope(nodeid))

    return OneSpark(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        places = {HERE / name: place for place, name in enumerate(LONGEST_FILES)}
        items.sort(key=lambda item: places.get(item.path, len(places)))
    if SLOW not in os.environ:
        slow_files = {HERE / name for name in SLOW_FILES}
        slow = pytest.mark.skip(reason="takes minutes; make spark, faults or other-brokers or BUSWAY_SLOW=1 runs it")
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
