"""A broker in a process of its own, with TLS and a key, as the SDKs expect Azure."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEY_NAME = "RootManageSharedAccessKey"
KEY = "aGVsZCBieSBub2JvZHk="


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a broker listens, and the authority to trust."""

    amqp: int
    admin: int
    authority: Path

    @property
    def tls_connection_string(self) -> str:
        """Return the string of a namespace in Azure, for clients that are led to the ports by name."""
        return f"Endpoint=sb://localhost/;SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings of programs that use the broker."""
        keys = f"SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}"
        return {
            "BUSWAY_AMQP": str(self.amqp),
            "BUSWAY_ADMIN": str(self.admin),
            "BUSWAY_KEY_NAME": KEY_NAME,
            "BUSWAY_KEY": KEY,
            "BUSWAY_CONNECTION_STRING": f"Endpoint=sb://localhost:{self.amqp};{keys};UseDevelopmentEmulator=true",
            "SSL_CERT_FILE": str(self.authority),
            "REQUESTS_CA_BUNDLE": str(self.authority),
            "NODE_EXTRA_CA_CERTS": str(self.authority),
        }


@contextmanager
def running_broker(folder: Path, namespaces: Mapping[str, object]) -> Iterator[Ports]:
    """Run a broker with the one namespace in *namespaces*, which is the content of a Config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    config, tls, log = folder / "Config.json", folder / "tls", folder / "broker.log"
    config.write_text(json.dumps({"UserConfig": namespaces}), encoding="utf-8")
    command = [sys.executable, "-m", "busway_broker", "--port", "0", "--tls", str(tls), "--config", str(config)]
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)  # noqa: S603 - our own module
    try:
        assert process.stdout is not None
        with process.stdout as output:
            amqp = int(output.readline().split("localhost:")[1].split(";")[0])
        yield Ports(amqp, _admin_port(log), tls / "busway-ca.pem")
    finally:
        process.terminate()
        process.wait(10)


def _admin_port(log: Path) -> int:
    """Return the port of the administration, which is printed right after the first line of output."""
    while True:
        for line in log.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.startswith("admin ") and line.endswith("\n"):
                return int(line.rpartition(":")[2])
        time.sleep(0.05)


def namespace(**entities: object) -> dict[str, object]:
    """Return the description of a namespace with a key, which takes tokens of Entra ID too."""
    keys: list[dict[str, object]] = [{"Name": KEY_NAME, "Key": KEY}]
    keys += [{"Name": f"{KEY_NAME}{right}", "Key": KEY, "Rights": [right]} for right in ("Send", "Listen")]
    return {"Name": "conformance", "SharedAccessKeys": keys, "AcceptsEntraTokens": True, **entities}
