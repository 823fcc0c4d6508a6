import json
import re
import signal
import socket
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner

from cli.main import app
from tests.end_to_end.busway_process import ROOT, BuswayProcess

OTHER_PORT = "choose another port; --port 0 picks free ones"
CONFIGS = [ROOT / "infra/emulators" / name for name in ("west.json", "east.json", "hubs.json")]
READY = re.compile(
    r"ready (\S+) (Endpoint=sb://localhost:(\d+);SharedAccessKeyName=[^;]+;SharedAccessKey=[^;]+;"
    r"UseDevelopmentEmulator=true)"
)


def broker(*configs: Path, port: int = 0) -> BuswayProcess:
    files = [argument for config in configs for argument in ("--config", str(config))]
    return BuswayProcess("broker", *files, "--port", str(port))


def written(folder: Path, **namespace: object) -> Path:
    file = folder / f"{namespace['Name']}.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return file


def test_each_namespace_has_a_ready_line_in_file_order_with_its_own_connection_string() -> None:
    with broker(*CONFIGS) as process:
        found = [match for line in process.lines(3) if (match := READY.fullmatch(line))]
        assert [match[1] for match in found] == ["sbemulatorns", "sbemulatorns", "emulatorNs1"]
        assert len({match[3] for match in found}) == 3
        with ServiceBusClient.from_connection_string(found[0][2]) as client:
            with client.get_queue_sender("jobs-auxiliary") as sender:
                sender.send_messages(ServiceBusMessage("hello"))
            with client.get_queue_receiver("jobs-auxiliary") as receiver:
                assert [str(message) for message in receiver.peek_messages(5)] == ["hello"]
        with (
            ServiceBusClient.from_connection_string(found[1][2]) as client,
            client.get_queue_receiver("jobs-auxiliary") as receiver,
        ):
            assert receiver.peek_messages(5) == []
        assert_stops_soon_even_with_a_client(process, int(found[0][3]), signal.SIGTERM)


def assert_stops_soon_even_with_a_client(process: BuswayProcess, port: int, number: int) -> None:
    with socket.create_connection(("localhost", port)) as idle:
        idle.sendall(b"AMQP\x03\x01\x00\x00")
        code, seconds = process.stop(number)
    assert code == 0
    assert seconds < 8  # half a second on a machine with nothing else to do


def test_namespaces_without_a_port_get_consecutive_ports(tmp_path: Path) -> None:
    with socket.socket() as first, socket.socket() as own:
        first.bind(("127.0.0.1", 0))
        own.bind(("127.0.0.1", 0))
        port, own_port = first.getsockname()[1], own.getsockname()[1]
    configs = [written(tmp_path, Name="one"), written(tmp_path, Name="two", Port=own_port)]
    with broker(*configs, port=port) as process:
        found = [READY.fullmatch(line) for line in process.lines(2)]
        assert_stops_soon_even_with_a_client(process, port, signal.SIGINT)
    assert [(match[1], match[3]) for match in found if match] == [("one", str(port)), ("two", str(own_port))]


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["broker", f"--config={written(tmp_path, Name='one')}", f"--port={port}"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"port {port}: cannot listen for one, Address already in use; {OTHER_PORT}\n"


def test_every_problem_of_every_file_is_reported(tmp_path: Path) -> None:
    bad = written(tmp_path, Name="bad", Queues=[{"Name": "q", "Properties": {"MaxDeliveryCount": 0, "Foo": 1}}])
    result = CliRunner().invoke(app, ["broker", f"--config={bad}", f"--config={tmp_path / 'absent.json'}", "--port=0"])
    assert (result.exit_code, result.stdout) == (1, "")
    found = [text for text in ("MaxDeliveryCount", "Foo", "absent.json: cannot be read") if text not in result.stderr]
    assert found == []
