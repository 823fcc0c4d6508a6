"""Brokers as processes on free ports: ActiveMQ Artemis and RabbitMQ. `tools/other-brokers` fetches both."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path

ROOT = Path(__file__).parents[2]
FETCHED = Path(os.environ.get("BUSWAY_OTHER_BROKERS") or ROOT / "build/other-brokers")
USER, PASSWORD = "busway", "s3cret/:%"
ENCODED = "s3cret%2F%3A%25"
_READY_SECONDS = 90.0


class OtherBroker(ABC):
    """A broker whose data survive a kill."""

    def __init__(self, folder: Path) -> None:
        """Keep everything in *folder*."""
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL with user and password."""
        return f"amqp://{USER}:{ENCODED}@127.0.0.1:{self.port}"

    @abstractmethod
    def address(self, queue: str) -> str:
        """Return the address of a queue."""

    @abstractmethod
    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command of the process and its environment."""

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        command, environment = self.command()
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - a fixed command
                command, env=environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + _READY_SECONDS
        while not self._answers():
            if time.monotonic() > end or self.process.poll() is not None:
                self.kill()
                raise RuntimeError(f"{type(self).__name__} did not start: see {self.folder}/log.txt")
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill it and its children with SIGKILL, and wait for its end."""
        process, self.process = self.process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(2)
                connection.sendall(b"AMQP\x03\x01\x00\x00")
                return connection.recv(8) == b"AMQP\x03\x01\x00\x00"
        except OSError:
            return False


class Artemis(OtherBroker):
    """ActiveMQ Artemis, with queues that grow to a few kilobytes before they withhold credit."""

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot be started, None if it can."""
        if shutil.which("java") is None:
            return "Artemis needs Java"
        return None if _artemis() else f"Artemis is not in {FETCHED}: run tools/other-brokers"

    def address(self, queue: str) -> str:
        return queue

    def command(self) -> tuple[list[str], dict[str, str]]:
        instance = self.folder / "artemis"
        if not instance.exists():
            options = ["--user", USER, "--password", PASSWORD, "--require-login", "--host", "127.0.0.1", "--no-web"]
            options += ["--silent", "--no-autotune", "--java-memory", "512M", "--nio"]
            subprocess.run(  # noqa: S603 - a fixed command
                [str(_artemis()), "create", *options, str(instance)], check=True, capture_output=True
            )
            self._configure(instance / "etc/broker.xml")
        return [str(instance / "bin/artemis"), "run"], dict(os.environ)

    def _configure(self, file: Path) -> None:
        text = file.read_text()
        text = re.sub(r"<acceptors>.*</acceptors>", "<acceptors>ACCEPTOR</acceptors>", text, flags=re.DOTALL)
        uri = f"tcp://127.0.0.1:{self.port}?protocols=AMQP;amqpCredits=100;amqpLowCredits=30"
        text = text.replace("ACCEPTOR", f'<acceptor name="amqp">{uri}</acceptor>')
        small = (
            '<address-setting match="full.#"><max-size-bytes>20000</max-size-bytes>'
            "<address-full-policy>BLOCK</address-full-policy></address-setting>"
            '<address-setting match="failing.#"><max-size-bytes>20000</max-size-bytes>'
            "<address-full-policy>FAIL</address-full-policy></address-setting>"
            '<address-setting match="strict.#"><auto-create-queues>false</auto-create-queues>'
            "<auto-create-addresses>false</auto-create-addresses></address-setting>"
        )
        file.write_text(text.replace("<address-settings>", f"<address-settings>{small}"))


class RabbitMQ(OtherBroker):
    """RabbitMQ 3 with its plugin for AMQP 1.0, with a policy for full queues."""

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot be started, None if it can."""
        return None if _rabbitmq() else f"RabbitMQ is neither installed nor in {FETCHED}: run tools/other-brokers"

    def address(self, queue: str) -> str:
        return f"/queue/{queue}"

    def command(self) -> tuple[list[str], dict[str, str]]:
        home = _rabbitmq()
        folder = self.folder / "rabbitmq"
        if not folder.exists():
            folder.mkdir()
            (folder / "enabled_plugins").write_text("[rabbitmq_amqp1_0].")
            (folder / "rabbitmq.conf").write_text(
                f"listeners.tcp.default = 127.0.0.1:{self.port}\nlog.console = true\nlog.file = false\n"
                f"default_user = {USER}\ndefault_pass = {PASSWORD}\nload_definitions = {folder}/definitions.json\n"
            )
            (folder / "definitions.json").write_text(_DEFINITIONS)
            (folder / ".erlang.cookie").write_text("busway")
            (folder / ".erlang.cookie").chmod(0o400)
        environment = os.environ | {
            "HOME": str(folder),
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none",
            "RABBITMQ_NODENAME": "busway@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        erlang = FETCHED / "usr/lib/erlang"
        if erlang.exists():
            programs = [str(erlang / "bin"), *map(str, erlang.glob("erts-*/bin"))]
            environment["PATH"] = os.pathsep.join([*programs, environment["PATH"]])
        # Without root, the server does not start the port mapper itself. Both are in one process group.
        shell = 'epmd & exec "$0"'
        return ["/bin/sh", "-c", shell, f"{home}/sbin/rabbitmq-server"], environment


BROKERS: tuple[type[Artemis] | type[RabbitMQ], ...] = (Artemis, RabbitMQ)

_DEFINITIONS = """\
{
  "vhosts": [{"name": "/"}],
  "users": [{"name": "busway", "password": "s3cret/:%", "tags": "administrator"}],
  "permissions": [{"user": "busway", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
  "policies": [
    {
      "vhost": "/", "name": "full", "pattern": "^full", "apply-to": "queues", "priority": 0,
      "definition": {"max-length": 20, "overflow": "reject-publish"}
    }
  ]
}
"""


def free_port() -> int:
    """Return a port that nothing uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _artemis() -> Path | None:
    return next(iter(sorted(FETCHED.glob("apache-artemis-*/bin/artemis"))), None)


def _rabbitmq() -> Path | None:
    for root in (FETCHED, Path("/")):
        found = next(iter(sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))), None)
        if found is not None:
            return found
    return None
