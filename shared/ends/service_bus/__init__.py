"""Queues, topics and subscriptions of Azure Service Bus."""
