"""local.settings.json.example: every app setting that the code reads, so that nobody has to search for one."""

import json
import re

import yaml

from shared.access.secrets import SETTING_PREFIX
from shared.tasks.switches import switch_of
from tests.architecture.imports import ROOT
from tools.reference.app_settings import SECTIONS

CODE = ("function_app.py", "functions/**/*.py", "shared/**/*.py", "host/**/*.py")
# A name that ends in an underscore is the beginning of names that only an operator knows.
NAMED = re.compile(r"""["'](BUSWAY_[A-Z_]*[A-Z])["']""")

# The setting that the documentation's config/journal.yaml names: the app has a journal once somebody adds that file.
JOURNAL = re.compile(r"blob: \{setting: (\w+),")


def test_the_reference_has_every_setting_that_the_code_reads() -> None:
    places = (*CODE, "cli/**/*.py", "jobs/**/*.py")
    sources = [path.read_text(encoding="utf-8") for pattern in places for path in ROOT.glob(pattern)]
    listed = {setting.name for settings in SECTIONS.values() for setting in settings if "BUSWAY_" in setting.name}
    of_names = {f"{SETTING_PREFIX}NAME", switch_of("TASK")}
    assert listed - of_names == {name for source in sources for name in NAMED.findall(source)} - {"BUSWAY_VERSION"}


def test_the_example_holds_every_setting_that_the_code_reads() -> None:
    sources = [path.read_text(encoding="utf-8") for pattern in CODE for path in ROOT.glob(pattern)]
    read = {name for source in sources for name in NAMED.findall(source)}
    connections = yaml.safe_load(ROOT.joinpath("config", "connections.yaml").read_text(encoding="utf-8"))
    example = json.loads(ROOT.joinpath("local.settings.json.example").read_text(encoding="utf-8"))
    host = {"FUNCTIONS_WORKER_RUNTIME", "AzureWebJobsStorage"}
    journal = set(JOURNAL.findall(ROOT.joinpath("docs", "journal.md").read_text(encoding="utf-8")))
    assert journal
    assert (
        set(example["Values"]) == read | {connection["setting"] for connection in connections.values()} | host | journal
    )
