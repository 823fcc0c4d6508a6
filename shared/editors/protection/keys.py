"""
Keys in secrets, with which editors encrypt, decrypt, sign and verify.

1. A secret has one JSON Web Key or a JSON Web Key Set. The last key of a set is the newest: a rotation appends one.
2. The id of a key is its `kid`, which is required in a set; a single key without one has its thumbprint.
3. The algorithm of a key is its `alg`, or that of its kind (`jwe`, `jws`): a message with another one is rejected.

Source: RFC 7517 (JWK), RFC 7638 (thumbprint).
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, OctKey

from shared.codecs.json import Json, read
from shared.editors.options import Stateless, Step, TaskFacts
from shared.errors import ConfigError, MessageRejected, Problem, TargetRefused, TargetUnavailable
from shared.message.message import Message
from shared.protocols import BatchEditor, EditedTogether, Withheld
from shared.time_limit import TimeLimit

_LOGGER = logging.getLogger("busway.editors")

# Errors of the libraries for invalid keys; their texts may quote the key.
_FAULTS = (JoseError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, AttributeError, AssertionError)
_LEAST_SECRET = 22  # characters of BASE64URL that 16 bytes take
_LONGEST_KID = 100


class UnknownKey(MessageRejected):
    """A message names a key that was not in the secret when it was last read."""

    def __init__(self, secret: str, kid: str | None) -> None:
        """Name the key's id, which is not secret."""
        named = "names no key" if kid is None else f"names the key {kid[:_LONGEST_KID]!r}"
        super().__init__("UnknownKey", f"{named}, expected one of secret {secret}")


class KeyRing:
    """The keys of one version of a secret."""

    def __init__(self, secret: str, keys: Sequence[Key]) -> None:
        """Keep *keys*, the newest last, each with its id."""
        self.secret = secret
        self._keys = {str(key.kid): key for key in keys}
        self._made: dict[object, Any] = {}
        self.newest = keys[-1]

    def key(self, kid: str | None) -> Key:
        """Return the key that a message names, or the only one; raises UnknownKey."""
        if kid is None and len(self._keys) == 1:
            return self.newest
        found = self._keys.get(kid) if isinstance(kid, str) else None
        if found is None:
            raise UnknownKey(self.secret, kid if isinstance(kid, str) else None)
        return found

    def chosen(self, kid: str | None) -> Key:
        """Return the key that a task names, by default the newest; raises TargetRefused."""
        if kid is None:
            return self.newest
        try:
            return self.key(kid)
        except UnknownKey as error:
            raise TargetRefused(f"secret {self.secret}: it has no key {kid!r}, which the task names") from error

    def once[T](self, make: Callable[..., T], *arguments: object) -> T:
        """Return what *make* returns for this ring and *arguments*, which it is called for once."""
        if (make, arguments) not in self._made:
            self._made[make, arguments] = make(self, *arguments)
        made: T = self._made[make, arguments]
        return made


class KeyRings:
    """The secret with an editor's keys, parsed once per version."""

    def __init__(self, secret: str, task: TaskFacts, place: str) -> None:
        """Read nothing yet; raises ConfigError if the secret, which *place* names, is known to be missing."""
        problem = task.secrets.problem(secret)
        if problem is not None:
            where = f"task {task.name}: {place}: secret {secret}: app setting {problem.path}"
            raise ConfigError([Problem(where, problem.problem, problem.hint)])
        self._secret = secret
        self._secrets = task.secrets
        self._task = task.name
        self._time_limit = TimeLimit(task.edit_seconds)
        self._read: tuple[str, KeyRing] | None = None

    async def ring(self, *, timeout_seconds: float, refresh: bool = False) -> KeyRing:
        """Return the keys; raises TargetUnavailable or TargetRefused if they cannot be read."""
        try:
            async with asyncio.timeout(timeout_seconds):
                secret = await self._secrets.get(self._secret, refresh=refresh)
        except TimeoutError as error:
            raise TargetUnavailable(f"secret {self._secret}: no answer within {timeout_seconds:.0f} s") from error
        if self._read is None:
            self._read = secret.version, parse_ring(self._secret, secret.reveal())
        elif self._read[0] != secret.version:
            try:
                ring = parse_ring(self._secret, secret.reveal())
            except TargetRefused as error:
                _LOGGER.warning("%s: %s; the previous version stays in use", self._task, error)
                ring = self._read[1]
            self._read = secret.version, ring
        return self._read[1]

    async def each[Done](
        self, messages: Sequence[Message], work: Callable[[Message, KeyRing], Done], *, timeout_seconds: float
    ) -> list[Done | MessageRejected]:
        """
        Return the result of *work* for each message with the keys, or its rejection; raises if there are no keys.

        If a message names an unknown key, the keys are read again: it may have been added.
        """
        ring = await self.ring(timeout_seconds=timeout_seconds)
        results = await self._time_limit.each(lambda message: work(message, ring), messages)
        unknown = [index for index, result in enumerate(results) if isinstance(result, UnknownKey)]
        if unknown:
            ring = await self.ring(timeout_seconds=timeout_seconds, refresh=True)
            left = [messages[index] for index in unknown]
            again = await self._time_limit.each(lambda message: work(message, ring), left)
            for index, rejection in zip(unknown, again, strict=True):
                results[index] = rejection
        return results


class Keyed(Stateless):
    """An editor of messages one by one with the keys of a secret, which it reads once per batch."""

    def __init__(
        self, name: str, rings: KeyRings, edit: Callable[[Message, KeyRing], Message | Withheld], *, drops: bool = False
    ) -> None:
        """
        Withhold messages instead of rejecting them if it *drops*.

        *edit* gets copies, and may raise MessageRejected, or TargetRefused for an unsuitable key.
        """
        self.name = name
        self._drops = drops
        self._rings = rings
        self._edit = edit

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return each message edited, withheld or rejected; raises if the keys are unavailable."""
        edited = await self._rings.each(messages, self._edit_copy, timeout_seconds=timeout_seconds)
        return [self._result(message) for message in edited]

    def _edit_copy(self, message: Message, ring: KeyRing) -> Message | Withheld:
        # A copy, because the batch may be edited again with the original messages.
        return self._edit(message.copy(), ring)

    def _result(self, result: Message | Withheld | MessageRejected) -> EditedTogether:
        if isinstance(result, Message):
            return (result,)
        return Withheld(str(result)) if self._drops and isinstance(result, MessageRejected) else result


class KeyedStep(Step):
    """A step that edits messages one by one with the keys of a secret, which its options name."""

    keeps_properties: ClassVar[bool] = True
    options: Any

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor that this step is; raises ConfigError if the secret is known to be missing."""
        self.prepare()
        verb, drops = self.verb(), getattr(self.options, "on_failure", "") == "drop"
        rings = KeyRings(self.options.key, task, f"{verb}.key")
        return Keyed(verb, rings, lambda message, ring: self.edit(message, ring, task), drops=drops)

    @abstractmethod
    def edit(self, message: Message, ring: KeyRing, task: TaskFacts) -> Message | Withheld:
        """Return *message* edited; raises MessageRejected, or TargetRefused for an unsuitable key."""


def parse_ring(secret: str, text: str) -> KeyRing:
    """Return the keys in the value of a secret; raises TargetRefused, which does not quote it."""
    expected = "expected a JSON Web Key or a JSON Web Key Set"
    try:
        document = read(text.encode())
    except MessageRejected:
        raise TargetRefused(f"secret {secret}: it is not JSON, {expected}") from None
    listed = document.get("keys") if isinstance(document, dict) and "keys" in document else [document]
    if not isinstance(listed, list) or not listed:
        raise TargetRefused(f"secret {secret}: its `keys` is not a list with at least one key, {expected}")
    keys = [_key(f"secret {secret}: key {number} of {len(listed)}", each) for number, each in enumerate(listed, 1)]
    names = [key.kid for key in keys]
    if len(keys) > 1 and (None in names or len(set(names)) < len(names)):
        raise TargetRefused(f"secret {secret}: its keys have no distinct ids, expected a `kid` of its own for each")
    for key in keys:
        key.ensure_kid()
    return KeyRing(secret, keys)


def _key(where: str, document: Json) -> Key:
    if not isinstance(document, dict) or not isinstance(document.get("kty"), str):
        raise TargetRefused(f"{where}: it is not a JSON Web Key, expected an object with `kty`")
    symmetric = document.get("k")
    if document["kty"] == OctKey.key_type and (not isinstance(symmetric, str) or len(symmetric) < _LEAST_SECRET):
        raise TargetRefused(f"{where}: it is too short for a key, expected 16 bytes or more in `k` (BASE64URL)")
    try:
        # The library types the values of a JWK as texts, and checks them itself.
        return JWKRegistry.import_key(document)  # type: ignore[arg-type]
    except _FAULTS:
        raise TargetRefused(f"{where}: it cannot be read as a JSON Web Key of kind oct, RSA, EC or OKP") from None
