"""The clients of Azure: connections, secrets, senders, locks, and every use of a private part of an SDK."""
