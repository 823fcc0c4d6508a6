"""A broker in a process of its own, which a test may kill."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from azure.servicebus import ServiceBusClient

ROOT = Path(__file__).parents[2]


class BrokerProcess:
    """`busway broker` with these namespaces, as a Config.json has them; *prefix* is a command that runs it."""

    def __init__(
        self, folder: Path, namespaces: Sequence[dict[str, Any]], *options: object, prefix: Sequence[str] = ()
    ) -> None:
        config = folder / "Config.json"
        config.write_text(json.dumps({"UserConfig": {"Namespaces": namespaces}}))
        self.command = [*prefix, sys.executable, "-m", "cli", "broker", "--port", "0", "--config", str(config)]
        self.command += map(str, options)
        self.strings = {str(each["Name"]): "" for each in namespaces}
        """The connection strings of the namespaces."""
        self._errors = folder / "errors"

    def start(self) -> Self:
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(  # noqa: S603 - the command is this project's own
                self.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        self._output = self.process.stdout
        for _ in self.strings:
            _, name, self.strings[name] = self._output.readline().split()
        return self

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.wait()

    def wait(self) -> tuple[int, str]:
        """Return the exit code and the errors of a broker that ends."""
        code = self.process.wait(20)
        self._output.close()
        return code, self._errors.read_text()

    def client(self, name: str) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.strings[name], retry_total=0)

    def address(self, name: str) -> tuple[str, int]:
        host, _, port = self.strings[name].partition("//")[2].partition(";")[0].partition(":")
        return host, int(port.strip("/"))
