"""The outputs of a configuration."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from shared.access.secrets import open_secrets
from shared.ends.kind import Kind, OutputPlace
from shared.errors import ConfigError, Problem, TargetRefused
from shared.protocols import Output, Secrets
from shared.tasks.files import Configuration


def open_outputs(configuration: Configuration, settings: Mapping[str, str]) -> dict[str, Output]:
    """Return the output of each connection by alias; raises ConfigError."""
    secrets = open_secrets(settings)
    problems = []
    for alias, connection in configuration.connections.items():
        for problem in (
            _setting_problem(configuration, alias, settings),
            secrets.problem(connection.secret) if connection.secret is not None else None,
        ):
            if problem is not None:
                where = f"connections.yaml: {alias}: app setting {problem.path}"
                problems.append(Problem(where, problem.problem, problem.hint))
    if problems:
        raise ConfigError(problems)
    return {alias: _open_output(configuration, alias, settings, secrets) for alias in configuration.connections}


@asynccontextmanager
async def closing_outputs(
    configuration: Configuration, settings: Mapping[str, str]
) -> AsyncIterator[dict[str, Output]]:
    """Give what `open_outputs` returns, and close it at the end of the block."""
    outputs = open_outputs(configuration, settings)
    try:
        yield outputs
    finally:
        for output in outputs.values():
            await output.close()


def _setting_problem(configuration: Configuration, alias: str, settings: Mapping[str, str]) -> Problem | None:
    connection = configuration.connections[alias]
    if connection.setting is None or not (connection.end.has_trigger or configuration.sends_to(alias)):
        # A task that only takes events by a webhook needs no address.
        return None
    return connection.end.setting.problem(connection.setting, settings, configuration.hubs(alias))


def _open_output(configuration: Configuration, alias: str, settings: Mapping[str, str], secrets: Secrets) -> Output:
    connection = configuration.connections[alias]
    place = OutputPlace(
        configuration.site(alias),
        connection.secret or connection.key,
        settings,
        configuration.capabilities(alias),
        connection.headers or "text",
    )
    if connection.secret is None:
        return connection.end.output(place)
    # Import lazily: few apps have connections with secrets.
    from shared.ends.renewed import RenewedOutput  # noqa: PLC0415 - see above

    opened = partial(output_with_secret, connection.end, place)
    return RenewedOutput(place.site, connection.secret, secrets, opened)


def output_with_secret(kind: Kind, place: OutputPlace, text: str) -> Output:
    """Return an output for the *text* of a secret, whose name is the setting of *place*; raises TargetRefused."""
    fault = kind.setting.fault(text, ())
    if fault is not None:
        raise TargetRefused(f"{place.site}: secret {place.setting} {fault[0]}; {fault[1]}")
    return kind.output(place._replace(settings={place.setting: text}))
