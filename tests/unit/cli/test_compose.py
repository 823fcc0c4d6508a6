"""The compose file for Microsoft's emulators."""

import yaml

from cli.topology.compose import Emulator, compose_of


def test_each_namespace_has_an_emulator_with_its_own_port_and_file() -> None:
    text = compose_of([Emulator("west", "WEST", is_hubs=False), Emulator("hub-west", "HUB_WEST", is_hubs=True)])
    services = yaml.safe_load(text)["services"]
    assert list(services) == ["west", "west-sql", "hub-west", "azurite"]
    assert services["west"]["ports"] == ["127.0.0.1:5672:5672", "127.0.0.1:5300:5300"]
    assert services["hub-west"]["ports"] == ["127.0.0.1:5673:5672"]
    assert services["hub-west"]["volumes"] == ["./hub-west.json:/Eventhubs_Emulator/ConfigFiles/Config.json:ro"]
    assert services["hub-west"]["depends_on"] == ["azurite"]
    assert '#   export HUB_WEST="Endpoint=sb://localhost:5673;' in text


def test_without_event_hubs_there_is_no_storage() -> None:
    assert "azurite" not in compose_of([Emulator("west", "WEST", is_hubs=False)])
