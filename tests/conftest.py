import os

import pytest
from hypothesis import settings

AZURE_SETTINGS = ("BUSWAY_TEST_WEST", "BUSWAY_TEST_EAST")

# A deadline per example would measure the machine and its neighbours, not the code.
settings.register_profile("busway", settings(), deadline=None)
settings.load_profile("busway")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in AZURE_SETTINGS if not os.environ.get(name)]
    if not missing:
        return
    skip = pytest.mark.skip(reason=f"needs two live namespaces: {', '.join(missing)} not set")
    for item in items:
        if item.get_closest_marker("azure"):
            item.add_marker(skip)
