"""The app settings: what each holds, and its default. A test compares them with the names in the code."""

from collections.abc import Iterator
from typing import NamedTuple

from busway_reconcile.__main__ import CONNECTION_SETTING
from cli.local_faults import STACK_SETTING
from cli.output import FIRST_SECONDS
from cli.output import SETTING as SILENCE
from functions.dead_letters import BODIES, RESEND
from functions.startup import SECOND_TELEMETRY
from shared.access.secrets import SETTING_PREFIX, VAULT_SETTING
from shared.access.setting_form import SettingForm
from shared.assembly.journals import SETTING as JOURNAL
from shared.assembly.losses import ON
from shared.assembly.losses import SETTING as LOSSES
from shared.assembly.measurements import EVERY_MINUTE, OFF
from shared.assembly.measurements import SETTING as MEASUREMENTS
from shared.ends.namespace import ADMINISTRATION_SUFFIX
from shared.ends.registry import kinds
from shared.nightly.settings import DUE, JOB, MORNING, RESULTS, SCHEDULE
from shared.stores.storage_account import HOST_STORAGE
from shared.stores.storage_account import SETTING_FORM as ACCOUNT
from shared.tasks.switches import switch_of
from shared.telemetry.azure_monitor import CONNECTION_STRING
from shared.telemetry.opening import EXPORTERS
from shared.telemetry.opening import SETTING as TELEMETRY
from tools.reference.option_lists import line


class AppSetting(NamedTuple):
    """An app setting; an upper-case NAME in its name is a name of yours."""

    name: str
    values: str
    default: str
    meaning: str


_SWITCH = f"`{ON}` or `{OFF}`"
APP = (
    AppSetting("BUSWAY_CONFIG", "path", "`config`", "The configuration folder, relative to the app."),
    AppSetting(JOURNAL, _SWITCH, f"`{ON}`", "`off` ignores journal.yaml and its taps."),
    AppSetting(
        switch_of("TASK"), "`true` or `1`", "", "The app has no function for this task; `_` for `-` in its name."
    ),
    AppSetting(VAULT_SETTING, "URL, https://NAME.vault.azure.net", "", "The key vault that has the secrets."),
    AppSetting(f"{SETTING_PREFIX}NAME", "text", "", "Without a vault: the secret NAME, in upper case, `_` for `-`."),
    AppSetting(LOSSES, _SWITCH, f"`{ON}`", "Looks for lost messages every minute; needs a journal in blobs."),
    AppSetting(RESEND, _SWITCH, f"`{OFF}`", "Whether the dashboard may send dead letters and rejects again."),
    AppSetting(BODIES, _SWITCH, f"`{OFF}`", "Whether the dashboard shows bodies of dead letters and rejects."),
)
NIGHT = (
    AppSetting(
        RESULTS,
        "URL, https://ACCOUNT.blob.core.windows.net/CONTAINER",
        "",
        "The container with the results. Without it the app looks after no nights. The app's identity needs "
        "*Storage Blob Data Contributor*.",
    ),
    AppSetting(
        JOB,
        "/subscriptions/…/resourceGroups/…/providers/Microsoft.App/jobs/NAME",
        "",
        "The Container Apps job to start; without it something else starts the job. The app's identity needs "
        "*Container Apps Jobs Operator*.",
    ),
    AppSetting(
        SCHEDULE,
        "NCRONTAB, six fields",
        "four times an hour",
        "A schedule of its own, several times a day, in a timer of its own.",
    ),
    AppSetting(DUE, "time, UTC", f"`{MORNING:%H:%M}`", "When the result of the day before must exist."),
)
MONITORING = (
    AppSetting(
        TELEMETRY, " or ".join(f"`{value}`" for value in (OFF, *EXPORTERS)), f"`{OFF}`", "Where metrics and spans go."
    ),
    AppSetting(MEASUREMENTS, f"NCRONTAB, six fields, or `{OFF}`", f"`{EVERY_MINUTE}`", "When the gauges are measured."),
    AppSetting(CONNECTION_STRING, "connection string", "", "The Application Insights resource, for `azure-monitor`."),
    AppSetting(
        "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
        "`Authorization=AAD`",
        "",
        "The app's identity signs in there; it needs *Monitoring Metrics Publisher*.",
    ),
    AppSetting(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "URL",
        "`http://localhost:4318`",
        "The collector, for `otlp`; likewise OTEL_EXPORTER_OTLP_*.",
    ),
    AppSetting(
        "OTEL_TRACES_SAMPLER",
        "a sampler of OpenTelemetry",
        "`parentbased_always_on`",
        "Which spans are exported; OTEL_TRACES_SAMPLER_ARG is its argument.",
    ),
    AppSetting(
        "OTEL_SERVICE_NAME or OTEL_METRIC_EXPORT_INTERVAL or OTEL_BSP_MAX_QUEUE_SIZE or OTEL_SDK_DISABLED",
        "",
        "",
        "As OpenTelemetry documents them.",
    ),
    AppSetting(" or ".join(SECOND_TELEMETRY), "", "", "Must not be set: a second telemetry exports everything twice."),
)
HOST = (
    AppSetting("FUNCTIONS_WORKER_RUNTIME", "`python`", "required", "Not set on Flex Consumption."),
    AppSetting(
        HOST_STORAGE,
        "connection string, or `__accountName`",
        "required",
        "The storage of the Functions host: keys, checkpoints, leases.",
    ),
    AppSetting("FUNCTIONS_WORKER_PROCESS_COUNT", "", "`1`", "Must not be set: order holds in one process."),
)
COMMANDS = (
    AppSetting("BUSWAY_CHECKPOINTS", "path", "in memory", "`busway host`: the file that keeps checkpoints of hubs."),
    AppSetting(
        CONNECTION_SETTING, "connection string", "", "`busway reconcile` and its job: the account with the journal."
    ),
    AppSetting(SILENCE, "seconds", f"`{FIRST_SECONDS:g}`", "Silence after which a command says what it waits for."),
    AppSetting(
        STACK_SETTING, "path", "", "The folder of a running `busway start`, for `busway fault`; its settings name it."
    ),
    AppSetting(
        f"NAME{ADMINISTRATION_SUFFIX}", "URL", "the namespace", "Where `busway apply` administers a local namespace."
    ),
)
SECTIONS = {
    "The app": APP,
    "The night": NIGHT,
    "Monitoring": MONITORING,
    "The Functions host": HOST,
    "Commands on your machine": COMMANDS,
}
_INTRO = """\
# App settings

<!-- Generated: make reference -->

On Azure, set them with the parameter `appSettings` of the template ([parameters](../azure-options.md#parameters)); on
your machine, in local.settings.json or the environment. An empty value counts as missing. A wrong value stops the
start.
"""


def settings_page() -> str:
    """Return the text of docs/reference/settings.md."""
    return _INTRO + "\n" + "\n".join(_sections()).rstrip("\n") + "\n"


def _words_of(form: SettingForm) -> str:
    return form.missing.replace("{setting}", "NAME").removeprefix("expected ").removeprefix("set NAME to ")


def _sections() -> Iterator[str]:
    yield from ("## Connections, journal and stores", "")
    yield "A connection or store names the setting: `west: {kind: service-bus, setting: WEST}`. Set NAME to"
    yield ""
    kinds_of: dict[str, list[str]] = {}
    for kind in kinds():
        kinds_of.setdefault(_words_of(kind.setting), []).append(kind.name)
    for words, names in kinds_of.items():
        yield f"- {', '.join(names)}: {words}"
    yield f"- the journal, stores of editors: {_words_of(ACCOUNT)}; of a store also file:PATH"
    yield ""
    for title, settings in SECTIONS.items():
        yield from (f"## {title}", "")
        for setting in settings:
            yield line(setting.name.replace(" or ", "` or `"), setting.values, setting.default, setting.meaning)
        yield ""
