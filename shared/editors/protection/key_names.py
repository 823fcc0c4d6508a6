"""The names of keys in tasks: those of the secrets that hold them."""

from typing import Annotated, Literal

from pydantic import Field

from shared.editors.options import Strict
from shared.editors.protection.bound_properties import BoundNames

type KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,127}$")]
"""Name of a secret that holds a JSON Web Key, or a JSON Web Key Set whose last key is the newest."""
type KeyId = Annotated[str, Field(min_length=1)]
type Algorithm = Literal["A256KW", "dir", "RSA-OAEP-256", "ECDH-ES+A256KW"]
type ContentEncryption = Literal["A256GCM", "A128GCM", "A128CBC-HS256", "A256CBC-HS512"]


class SealingOptions(Strict):
    """The key and the algorithms of an encryption."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set, of which the last one is used."""
    kid: KeyId | None = None
    """Id of the key to use, if it is not the last of the set."""
    alg: Algorithm | None = None
    """Algorithm of the key; by default its own `alg`, or that of its kind; `dir` encrypts with the key itself."""
    enc: ContentEncryption = "A256GCM"
    """Algorithm that encrypts the content."""
    bind: BoundNames | None = None
    """Properties, such as sys.MessageId, that must be the same at decryption."""
