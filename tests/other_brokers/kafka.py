"""Kafka as a process, in KRaft mode: a broker that is its own controller. `tools/other-brokers` fetches it."""

import os
import shutil
import socket
import subprocess
from functools import cached_property
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from busway_broker.admin.certificate import AUTHORITY_FILE, SERVER_FILE, server_context
from tests.other_brokers.processes import ENCODED, FETCHED, PASSWORD, USER, OtherBroker, free_port

_JARS = FETCHED / "kafka-4.1.2"
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
_SECONDS = 60
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_TOKEN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class Kafka(OtherBroker):
    """Kafka with three ports: for passwords, for passwords with TLS, and for tokens that nobody signs, with TLS."""

    def __init__(self, folder: Path, token_port: int | None = None) -> None:
        """Keep everything in *folder*; take tokens at a free port, or at that of the endpoint of Event Hubs."""
        super().__init__(folder)
        self.tls_port, self._controller_port = free_port(), free_port()
        self.token_port = token_port or free_port()
        self._node = 1

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot be started, None if it can."""
        if shutil.which("java") is None:
            return "Kafka needs Java"
        return None if _JARS.exists() else f"Kafka is not in {FETCHED}: run tools/other-brokers"

    @property
    def url(self) -> str:
        return f"kafka://{USER}:{ENCODED}@127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """The options of librdkafka for a client with all rights."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    @cached_property
    def admin(self) -> AdminClient:
        """A client with all rights; its answers need it until they come."""
        return AdminClient(self.options)

    @property
    def authority(self) -> Path:
        """The certificate that a client has to trust."""
        return self.folder / AUTHORITY_FILE

    def address(self, queue: str) -> str:
        return queue

    def command(self) -> tuple[list[str], dict[str, str]]:
        properties = self.folder / "server.properties"
        java = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", f"{_JARS}/*"]
        if not properties.exists():
            server_context(self.folder)
            properties.write_text(self._properties())
            format_ = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)]
            subprocess.run([*java, *format_], check=True, capture_output=True)  # noqa: S603 - a fixed command
        return [*java, "kafka.Kafka", str(properties)], dict(os.environ)

    def create(self, topic: str, partitions: int = 4, replicas: int = 1, **settings: str) -> str:
        """Create a topic with settings, whose dots are underscores here; return its name."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        created = self.admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])
        created[topic].result(_SECONDS)
        return topic

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        return set(self.admin.list_topics(timeout=_SECONDS).topics)

    def add_scram_user(self, name: str, password: str) -> None:
        """Create a user that authenticates with SCRAM-SHA-512 and has all rights of the others: none."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        self.admin.alter_user_scram_credentials([change])[name].result(_SECONDS)

    def second(self) -> "Kafka":
        """Return another broker of this cluster, which is not started."""
        other = Kafka(self.folder / "second")
        other.folder.mkdir()
        other._controller_port, other._node = self._controller_port, 2
        return other

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False

    def _properties(self) -> str:
        secret = f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}" user_reader="reader"'
        lines = {
            "process.roles": "broker,controller" if self._node == 1 else "broker",
            "node.id": str(self._node),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": ",".join([self._listeners(), *self._controller()]),
            "advertised.listeners": self._listeners(),
            "listener.security.protocol.map": (
                "PASSWORD:SASL_PLAINTEXT,TLS:SASL_SSL,TOKEN:SASL_SSL,CONTROLLER:PLAINTEXT"
            ),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PASSWORD",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.password.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.password.plain.sasl.jaas.config": f"{_PLAIN} required {secret};",
            "listener.name.tls.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.tls.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(self.folder / SERVER_FILE),
            "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.token.ssl.keystore.type": "PEM",
            "listener.name.token.ssl.keystore.location": str(self.folder / SERVER_FILE),
            "listener.name.token.oauthbearer.sasl.jaas.config": f"{_TOKEN} required;",
            "listener.name.token.oauthbearer.sasl.server.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
                "OAuthBearerUnsecuredValidatorCallbackHandler"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{USER};User:scram;User:token;User:ANONYMOUS",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "auto.create.topics.enable": "true",
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def _controller(self) -> list[str]:
        return [f"CONTROLLER://127.0.0.1:{self._controller_port}"] if self._node == 1 else []

    def _listeners(self) -> str:
        ports = {"PASSWORD": self.port, "TLS": self.tls_port, "TOKEN": self.token_port}
        return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
