"""The local Azure Functions host; `host.host` has it. The worker process imports only what it needs."""
