"""What Busway tells of its batches: a log line each, and OpenTelemetry metrics and spans where a setting asks."""
