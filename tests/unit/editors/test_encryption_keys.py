"""Keys of encrypt, decrypt and re-encrypt: new versions, stores that are unavailable, and unsuitable keys."""

import asyncio
import json
from typing import Any

import pytest
from joserfc import jwe

from shared.editors.protection.keys import parse_ring
from shared.errors import ConfigError, TargetRefused, TargetUnavailable
from shared.protocols import Secret
from shared.tasks.steps import STEPS
from tests.editing import answers, edited, editor
from tests.fakes import task_facts
from tests.keys import jwks, made, settings
from tests.unit.editors.encrypting import ORDER, order


class SecretsThatChange:
    """Secrets that a test can change or make unavailable."""

    def __init__(self, **values: str) -> None:
        self.values = values
        self.fresh = dict(values)
        self.away = None
        self.asked: list[Any] = []

    async def get(self, name: str, *, refresh: bool = False) -> Secret:
        self.asked.append((name, refresh))
        if self.away is not None:
            raise self.away
        if refresh:
            self.values = dict(self.fresh)
        if name not in self.values:
            raise TargetRefused(f"secret {name}: the vault has none of that name")
        return Secret(name, str(hash(self.values[name])), self.values[name])

    def problem(self, _: str) -> None:
        return None


def with_secrets(verb: str, secrets: Any, **options: Any) -> Any:
    facts = task_facts()._replace(secrets=secrets)
    return STEPS[verb].model_validate({verb: options}).editor(facts)


def test_the_newest_key_encrypts_and_every_key_of_the_set_decrypts() -> None:
    old, new = made("oct", "2025"), made("oct", "2026")
    secrets = SecretsThatChange(k=jwks(old, new))
    sealed = edited(with_secrets("encrypt", secrets, key="k"), order())
    assert jwe.decrypt_compact(sealed.body, new).protected["kid"] == "2026"
    named = edited(with_secrets("encrypt", secrets, key="k", kid="2025"), order())
    assert jwe.decrypt_compact(named.body, old).protected["kid"] == "2025"
    decrypt = with_secrets("decrypt", secrets, key="k")
    assert [edited(decrypt, each).body for each in (sealed, named)] == [ORDER, ORDER]
    with pytest.raises(TargetRefused, match="secret k: it has no key '2024', which the task names"):
        edited(with_secrets("encrypt", secrets, key="k", kid="2024"), order())


def test_an_unknown_key_is_read_from_the_vault_once_per_batch() -> None:
    old, new = made("oct", "2025"), made("oct", "2026")
    secrets = SecretsThatChange(k=jwks(old))
    decrypt = with_secrets("decrypt", secrets, key="k")
    sealed = [
        edited(with_secrets("encrypt", SecretsThatChange(k=jwks(key)), key="k"), order()) for key in (old, new, new)
    ]
    assert edited(decrypt, sealed[0]).body == ORDER
    secrets.fresh["k"] = jwks(old, new)
    secrets.asked.clear()
    assert [each[0].body for each in answers(decrypt, *sealed)] == [ORDER] * 3
    assert secrets.asked == [("k", False), ("k", True)]
    stranger = edited(with_secrets("encrypt", SecretsThatChange(k=jwks(made("oct", "x"))), key="k"), order())
    secrets.asked.clear()
    results = answers(decrypt, stranger, sealed[2], stranger)
    assert [getattr(result, "reason", None) for result in results] == ["UnknownKey", None, "UnknownKey"]
    assert secrets.asked == [("k", False), ("k", True)]


def test_a_new_secret_version_without_keys_is_reported_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    secrets = SecretsThatChange(k=jwks(made("oct")))
    encrypt = with_secrets("encrypt", secrets, key="k")
    edited(encrypt, order())
    secrets.values["k"] = "hidden-material"
    assert edited(encrypt, order()).content_type == "application/jose"
    assert edited(encrypt, order()).content_type == "application/jose"
    (expected,) = [each for each in caplog.messages if "secret k" in each]
    assert expected.startswith("copy: secret k: it is not JSON")
    assert "hidden-material" not in expected


@pytest.mark.parametrize("away", [TargetUnavailable("vault: away"), TargetRefused("vault: no")])
@pytest.mark.parametrize("verb", ["encrypt", "decrypt", "sign", "verify", "attest"])
def test_no_message_passes_an_editor_that_cannot_read_its_keys(verb: str, away: Any) -> None:
    secrets = SecretsThatChange(k=jwks(made("oct")))
    secrets.away = away
    sent = order()
    with pytest.raises(type(away), match="vault"):
        answers(with_secrets(verb, secrets, key="k"), sent)
    assert sent.encode() == order().encode()


def test_a_vault_that_does_not_answer_delays_a_batch_only_up_to_its_time_limit() -> None:
    class Silent(SecretsThatChange):
        async def get(self, name: str, *, refresh: bool = False) -> Secret:
            await asyncio.Event().wait()
            return await super().get(name, refresh=refresh)

    step = with_secrets("encrypt", Silent(), key="k")
    with pytest.raises(TargetUnavailable, match="secret k: no answer within 0 s"):
        asyncio.run(step.edit_batch([order()], timeout_seconds=0.01))


SHORT = {"kty": "oct", "k": "c2hvcnQtYW5kLXNlY3JldA"[:10]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hidden-material", "it is not JSON"),
        ('{"keys": []}', "not a list with at least one key"),
        ('{"keys": 5}', "not a list with at least one key"),
        ('{"kty": 5}', "not a JSON Web Key"),
        ("[]", "not a JSON Web Key"),
        ('{"kty": "hidden-material"}', "cannot be read as a JSON Web Key"),
        ('{"kty": "oct", "k": "hidden-material-hidden-material!!"}', "cannot be read as a JSON Web Key"),
        ('{"kty": "RSA", "n": "hidden-material", "e": "AQAB"}', "cannot be read as a JSON Web Key"),
        ('{"kty": "EC", "crv": "P-256", "x": "AA", "y": "hidden-material"}', "cannot be read as a JSON Web Key"),
        (json.dumps(SHORT), "too short for a key"),
        (jwks(made("oct", "a"), made("RSA", "a")), "no distinct ids"),
        (json.dumps({"keys": [{"kty": "oct", "k": "A" * 43}] * 2}), "no distinct ids"),
    ],
)
def test_a_secret_without_keys_is_an_error_that_does_not_quote_it(value: Any, expected: str) -> None:
    with pytest.raises(TargetRefused, match=expected) as raised:
        parse_ring("payments", value)
    assert str(raised.value).startswith("secret payments: ")
    assert "hidden-material" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("key", "options", "expected"),
    [
        (made("Ed25519"), {}, "is not for encryption"),
        (made("oct", use="sig"), {}, "is not for encryption"),
        (made("oct"), {"alg": "RSA-OAEP-256"}, "is for A256KW or dir, expected one for RSA-OAEP-256"),
        (made("oct", alg="HS256"), {}, "is not for encryption"),
        (made("oct", alg="dir"), {"enc": "A256CBC-HS512"}, "cannot encrypt with dir and A256CBC-HS512"),
    ],
)
def test_an_unsuitable_key_is_an_error_for_the_operator(key: Any, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(TargetRefused, match=f"secret k: key k1 {expected}"):
        edited(editor("encrypt", settings(k=jwks(key)), key="k", **options), order())


def test_a_missing_app_setting_for_the_key_stops_the_start() -> None:
    for verb in ("encrypt", "decrypt", "sign", "verify", "attest"):
        with pytest.raises(ConfigError) as raised:
            editor(verb, {}, key="orders-2026")
        (problem,) = raised.value.problems
        assert problem.path == f"task copy: {verb}.key: secret orders-2026: app setting BUSWAY_SECRET_ORDERS_2026"
