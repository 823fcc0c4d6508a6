import gc
import itertools
import os
import tracemalloc  # noqa: F401 - pytest would import it while it tells what is collected, and an import collects
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

AZURE_SETTINGS = ("BUSWAY_TEST_WEST", "BUSWAY_TEST_EAST")

JOBS = "tests/jobs/"
# One worker has Spark, and one the syntax trees of all modules.
AT_ONCE = JOBS, "tests/architecture/"
# Their tests wait for processes and timers.
WAITING = "tests/clients/", "tests/end_to_end/", "tests/faults/", "tests/wire/", "broker/tests/test_"
# The SDKs leave a socket open when a connection fails while it is being opened.
LEAVING = "tests/clients/", "broker/tests/"
LEFT_OVER = "ignore::pytest.PytestUnraisableExceptionWarning"
# Commands are slow beside other tests: what they wait for is no part of what they print.
os.environ.setdefault("BUSWAY_SILENCE_SECONDS", "60")

# A deadline for each example would measure the machine and its neighbours, not the code. Each change has few examples,
# because the next has others; `make properties` has many.
PROFILE: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("few", max_examples=25, **PROFILE)
settings.register_profile("many", max_examples=1000, **PROFILE)
settings.load_profile("few")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let two of many workers collect all tests, and the others those that wait: to collect one half costs 3 s less."""
    everything = node.config.args_source is pytest.Config.ArgsSource.TESTPATHS
    first_workers = {f"gw{number}" for number in range(len(node.config.getvalue("tx")))}
    node.workerinput["waiting"] = everything and node.gateway.id in first_workers - {"gw0", "gw1"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not getattr(config, "workerinput", {}).get("waiting"):
        return None
    path = f"{collection_path.relative_to(config.rootpath).as_posix()}{'/' if collection_path.is_dir() else ''}"
    return None if path.startswith(WAITING) or any(each.startswith(path) for each in WAITING) else True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """
    Give each file to one worker, and all files of the nightly job to the same one: Spark starts once.

    Two workers compute, from both ends, so that both cores have work while the others wait.
    """
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415 - not installed with other versions of Spark

    class BothEnds(LoadFileScheduling):  # type: ignore[misc,unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in AT_ONCE if nodeid.startswith(folder)), str(super()._split_scope(nodeid)))

        def _check_nodes_have_same_collection(self) -> bool:
            """Take the longest collection as what there is to do; the others are parts of it."""
            collections = sorted(self.registered_collections.items(), key=lambda each: -len(each[1]))
            self.registered_collections: dict[Any, list[str]] = dict(collections)
            everything = set(collections[0][1])
            is_part = all(everything.issuperset(part) for _, part in collections)
            return is_part or bool(super()._check_nodes_have_same_collection())

        def _assign_work_unit(self, node: Any) -> None:
            if node not in self.registered_collections:
                return  # it replaces a worker that crashed, and still collects
            units = iter(self.workqueue)
            if node.workerinput["waiting"]:
                units = (unit for unit in units if unit.startswith(WAITING))
            elif node.gateway.id == "gw0":
                units = itertools.chain((unit for unit in units if not unit.startswith(WAITING)), self.workqueue)
            elif node.gateway.id == "gw1":
                units = reversed(self.workqueue)
            unit = next(units, None)
            if unit is None:
                node.shutdown()
                return
            self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

    return BothEnds(config, log)


def place(item: pytest.Item) -> int:
    """Return when a test starts, with several workers: a long file at the end leaves the others idle."""
    if item.nodeid.startswith(JOBS):
        return 0
    if item.get_closest_marker("long"):
        return 1
    return 2 if item.nodeid.startswith(WAITING) else 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=place)
    for item in items:
        if item.nodeid.startswith(LEAVING):
            item.add_marker(pytest.mark.filterwarnings(LEFT_OVER))
    if "BUSWAY_SLOW" not in os.environ:
        slow = pytest.mark.skip(reason="takes minutes; make spark, faults or other-brokers or BUSWAY_SLOW=1 runs it")
        for item in items:
            if item.get_closest_marker("slow") and not item.get_closest_marker("always"):
                item.add_marker(slow)
    missing = [name for name in AZURE_SETTINGS if not os.environ.get(name)]
    if not missing:
        return
    skip = pytest.mark.skip(reason=f"needs two live namespaces: {', '.join(missing)} not set")
    for item in items:
        if item.get_closest_marker("azure"):
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Leave the tests and all modules out of the collections of garbage, a tenth of the time otherwise."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what the SDKs have left over while its warnings are still ignored."""
    yield
    marks = request.node.iter_markers("filterwarnings")
    if request.node.nodeid.startswith(LEAVING) or any(LEFT_OVER in mark.args for mark in marks):
        gc.collect()
