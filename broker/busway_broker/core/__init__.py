"""Namespaces, entities and messages, without I/O."""
