"""
Tasks that an app setting switches off: the app then has no function for them, so that nothing asks their sources.

Azure's own AzureWebJobs.FUNCTION.Disabled is refused on Linux if the name has a hyphen (Azure-Functions 1851), and a
source that is only ReceiveDisabled is asked several times a second (azure-sdk-for-net 27301).
"""

from collections.abc import Mapping
from dataclasses import replace

from shared.tasks.files import Configuration

_ON = {"1", "true"}


def switch_of(task: str) -> str:
    """Return the app setting that switches a task off: letters, digits and `_` only, which every plan accepts."""
    return f"BUSWAY_OFF_{task.replace('-', '_')}"


def switched_on(configuration: Configuration, settings: Mapping[str, str]) -> Configuration:
    """Return *configuration* without the tasks that *settings* switch off."""
    tasks = [task for task in configuration.tasks if settings.get(switch_of(task.task), "").lower() not in _ON]
    return replace(configuration, tasks=tasks)
