"""Topics of Azure Event Grid."""
