"""The outputs of a configuration."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from shared.azure.connections import setting_problem
from shared.azure.event_grid_endpoint import event_grid_setting_problem
from shared.azure.outputs import amqp_setting_problem, open_output, open_output_with_secret
from shared.azure.secrets import open_secrets
from shared.azure.senders.kafka_endpoint import kafka_setting_problem
from shared.azure.storage_queues import queue_setting_problem
from shared.config.files import Configuration
from shared.config.models import Connection
from shared.errors import ConfigError, Problem
from shared.protocols import Output, Secrets


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
    return {
        alias: _open_output(configuration, alias, connection, settings, secrets)
        for alias, connection in configuration.connections.items()
    }


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
    if connection.setting is None:
        return None
    if connection.kind == "amqp":
        return amqp_setting_problem(connection.setting, settings)
    if connection.kind == "kafka":
        return kafka_setting_problem(connection.setting, settings)
    if connection.kind == "event-grid":
        # A task that only takes events by a webhook needs no address.
        sends = configuration.sends_to(alias)
        return event_grid_setting_problem(connection.setting, settings) if sends else None
    if connection.kind == "storage-queue":
        return queue_setting_problem(connection.setting, settings)
    return setting_problem(connection.setting, settings, configuration.hubs(alias))


def _open_output(
    configuration: Configuration,
    alias: str,
    connection: Connection,
    settings: Mapping[str, str],
    secrets: Secrets,
) -> Output:
    site, capabilities = configuration.site(alias), configuration.capabilities(alias)
    headers = connection.headers or "text"
    if connection.secret is not None:
        return open_output_with_secret(site, connection.kind, connection.secret, secrets, capabilities, headers=headers)
    return open_output(site, connection.kind, connection.key, settings, capabilities, headers=headers)
