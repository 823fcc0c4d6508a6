"""The content of bodies: bytes, fields, formats, schemas, envelopes and expressions."""
