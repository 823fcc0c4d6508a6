"""
Public test suites for the formats that editors read: JSON, JMESPath, CBOR, MessagePack, encrypted and signed content.

`make suites` runs them and fetches nothing: it takes whole suites from the checkouts in the folder that BUSWAY_SUITES
names, each under the name of its repository, and without one the excerpts here, which have the same format and were
written for this project.

- JSON Schema, draft 2020-12 (`tests/unit/editors/test_json_schema_suite.py`): all
- JSONTestSuite: as they must; a name twice is rejected on purpose
- jmespath.test: all but one: a literal that is not JSON is read as text
- cbor/test-vectors: read, or rejected as what JSON cannot have
- msgpack-test-suite: read; extensions but the timestamp are rejected
- Wycheproof, signatures: as they must; other spellings of Base64, and keys with a wrong `alg`, are rejected
- Wycheproof, encryption: as they must; RSA1_5, GCM key wrapping and compression are rejected

Common producers have tests in tests/unit/editors and tests/unit/codecs: ProtoJSON, Event Hubs Capture, CloudEvents of
Event Grid and Kafka, Confluent's serializers and .NET's DataContractSerializer (rejected, and named), character sets.
"""
