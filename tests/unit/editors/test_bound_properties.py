"""What a signature or an encryption binds: every value of a property, and nothing that two readers see differently."""

import pytest

from shared.amqp.map_section import AmbiguousName
from shared.amqp.values import long
from shared.editors.protection.bound_properties import canonical_form, canonical_form_of_all, digest
from tests.messages import message


def test_a_name_in_two_spellings_is_not_bound() -> None:
    received = message(named={"amount": long(5), "Amount": long(5000)})
    with pytest.raises(AmbiguousName, match="two properties are named amount"):
        digest(["amount"], received)
    with pytest.raises(AmbiguousName, match="named amount"):
        canonical_form_of_all(received)
    assert canonical_form(["other"], received) == b'[["other","null",null]]'
