"""What producers and consumers import to use two or more Service Bus namespaces as one."""
