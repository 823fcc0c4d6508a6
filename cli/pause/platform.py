"""The platform's own way to stop functions: app settings, which restart the app."""

from collections.abc import Iterable, Iterator

from shared.config.models import TaskFile


def az_commands(files: Iterable[TaskFile], *, is_pause: bool) -> Iterator[str]:
    """Yield the command that stops the functions of each task, or starts them again."""
    for file in files:
        names = [f"AzureWebJobs.{name}.Disabled" for name in file.functions()]
        place = '--resource-group "$GROUP" --name "$APP"'
        if is_pause:
            settings = " ".join(f"{name}=true" for name in names)
            yield f"az functionapp config appsettings set {place} --settings {settings}"
        else:
            yield f"az functionapp config appsettings delete {place} --setting-names {' '.join(names)}"
