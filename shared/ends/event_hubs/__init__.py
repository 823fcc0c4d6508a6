"""Azure Event Hubs."""
