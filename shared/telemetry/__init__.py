"""Reports on batches: a log line each, and OpenTelemetry metrics and spans if a setting asks for them."""
