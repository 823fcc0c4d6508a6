"""The local Azure Functions host; `local.host.host` has it. The worker process imports only what it needs."""
