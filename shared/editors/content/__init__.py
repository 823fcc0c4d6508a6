"""What a body says: its bytes, fields, format, schema, envelope, and expressions over it."""
