"""RabbitMQ as a process: 3 and 4. `tools/other-brokers` fetches both, each with the Erlang that it needs."""

import json
import os
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.other_brokers.processes import FETCHED, PASSWORD, USER, OtherBroker, free_port


class RabbitMQ3(OtherBroker):
    """RabbitMQ 3 with its plugin for AMQP 1.0, with a policy for full queues."""

    roots: ClassVar[tuple[Path, ...]] = (FETCHED, Path("/"))
    plugins: ClassVar[tuple[str, ...]] = ("rabbitmq_amqp1_0", "rabbitmq_shovel")
    queues: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder / "rabbitmq"
        self._ports = {"RABBITMQ_DIST_PORT": str(free_port()), "ERL_EPMD_PORT": str(free_port())}

    @classmethod
    def missing(cls) -> str | None:
        """Return why it cannot be started, None if it can."""
        return None if cls._home() else f"{cls.__name__} is neither installed nor in {FETCHED}: run tools/other-brokers"

    def address(self, queue: str) -> str:
        return f"/queue/{queue}"

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl and return what it prints."""
        command = [f"{self._home()}/sbin/rabbitmqctl", *arguments]
        return subprocess.run(command, env=self._environment(), check=True, capture_output=True, text=True).stdout  # noqa: S603 - a fixed command

    def command(self) -> tuple[list[str], dict[str, str]]:
        folder = self._folder
        if not folder.exists():
            folder.mkdir()
            (folder / "enabled_plugins").write_text(f"[{','.join(self.plugins)}].")
            (folder / "rabbitmq.conf").write_text(
                f"listeners.tcp.default = 127.0.0.1:{self.port}\nlog.console = true\nlog.file = false\n"
                f"load_definitions = {folder}/definitions.json\n"
            )
            (folder / "definitions.json").write_text(json.dumps(self._definitions()))
            (folder / ".erlang.cookie").write_text("busway")
            (folder / ".erlang.cookie").chmod(0o400)
        # Without root, the server does not start the port mapper itself. Both are in one process group.
        shell = 'epmd & exec "$0"'
        return ["/bin/sh", "-c", shell, f"{self._home()}/sbin/rabbitmq-server"], self._environment()

    def _environment(self) -> dict[str, str]:
        folder = self._folder
        environment = os.environ | self._ports
        environment |= {
            "HOME": str(folder),
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none",
            "RABBITMQ_NODENAME": "busway@localhost",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        erlang = self.roots[0] / "usr/lib/erlang"
        if erlang.exists():
            programs = [str(erlang / "bin"), *map(str, erlang.glob("erts-*/bin"))]
            environment["PATH"] = os.pathsep.join([*programs, environment["PATH"]])
        return environment

    def _definitions(self) -> dict[str, object]:
        rights = {"user": USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        full = {"max-length": 20, "overflow": "reject-publish"}
        queue = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}}
        return {
            "vhosts": [{"name": "/"}],
            "users": [{"name": USER, "password": PASSWORD, "tags": "administrator"}],
            "permissions": [rights],
            "policies": [{"vhost": "/", "name": "full", "pattern": "^full", "apply-to": "queues", "definition": full}],
            "queues": [queue | {"name": name} for name in self.queues],
        }

    @classmethod
    def _home(cls) -> Path | None:
        found = (path for root in cls.roots for path in sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")))
        return next(found, None)


class RabbitMQ4(RabbitMQ3):
    """RabbitMQ 4, which has AMQP 1.0 without a plugin, with quorum queues."""

    roots: ClassVar[tuple[Path, ...]] = (FETCHED / "rabbitmq-4",)
    plugins: ClassVar[tuple[str, ...]] = ("rabbitmq_shovel",)
    queues: ClassVar[tuple[str, ...]] = ("benchmark", "orders", "full.orders", *(f"q{number}" for number in range(8)))

    def address(self, queue: str) -> str:
        return f"/queues/{queue}"
