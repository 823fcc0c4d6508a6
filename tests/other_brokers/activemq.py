"""ActiveMQ as a process: Artemis, and Classic. `tools/other-brokers` fetches both."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.other_brokers.processes import FETCHED, PASSWORD, USER, OtherBroker


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


class ActiveMQ(OtherBroker):
    """ActiveMQ Classic, with small queues, and a user `reader` who may not send."""

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot be started, None if it can."""
        if shutil.which("java") is None:
            return "ActiveMQ needs Java"
        return None if _activemq() else f"ActiveMQ is not in {FETCHED}: run tools/other-brokers"

    def address(self, queue: str) -> str:
        return queue

    def command(self) -> tuple[list[str], dict[str, str]]:
        home = _activemq()
        file = self.folder / "activemq.xml"
        if not file.exists():
            values = {"user": USER, "password": PASSWORD, "data": self.folder / "data"}
            file.write_text(_ACTIVEMQ.format(port=self.port, **values))
            (self.folder / "log4j2.properties").write_text(_LOG)
        folders = {"home": home, "base": self.folder, "conf": self.folder, "data": self.folder / "data"}
        options = [f"-Dactivemq.{name}={folder}" for name, folder in folders.items()]
        java = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", *options, "-jar", f"{home}/bin/activemq.jar"]
        return [*java, "start", f"xbean:file:{file}"], dict(os.environ)


_LOG = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %m%n
"""

_ACTIVEMQ = """\
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
  http://www.springframework.org/schema/beans/spring-beans.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="other" dataDirectory="{data}" useJmx="false">
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="full.>" producerFlowControl="true" memoryLimit="20kb">
        <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>
      </policyEntry>
    </policyEntries></policyMap></destinationPolicy>
    <persistenceAdapter><kahaDB directory="{data}/kahadb"/></persistenceAdapter>
    <plugins>
      <simpleAuthenticationPlugin anonymousAccessAllowed="false"><users>
        <authenticationUser username="{user}" password="{password}" groups="senders"/>
        <authenticationUser username="reader" password="reader" groups="readers"/>
      </users></simpleAuthenticationPlugin>
      <authorizationPlugin><map><authorizationMap><authorizationEntries>
        <authorizationEntry queue=">" read="senders,readers" write="senders" admin="senders"/>
        <authorizationEntry topic=">" read="senders" write="senders" admin="senders"/>
      </authorizationEntries></authorizationMap></map></authorizationPlugin>
    </plugins>
    <transportConnectors>
      <transportConnector name="amqp" uri="amqp://127.0.0.1:{port}"/>
    </transportConnectors>
  </broker>
</beans>
"""


def _artemis() -> Path | None:
    return next(iter(sorted(FETCHED.glob("apache-artemis-*/bin/artemis"))), None)


def _activemq() -> Path | None:
    return next(iter(sorted(FETCHED.glob("apache-activemq-*/"))), None)
