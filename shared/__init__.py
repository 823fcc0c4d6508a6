"""The replicator: everything between a trigger and the target that has accepted the message."""
