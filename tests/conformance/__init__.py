"""Microsoft's SDKs against the broker: their own live tests where they are published, else programs of scenarios."""
