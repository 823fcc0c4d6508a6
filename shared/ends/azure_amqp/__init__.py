"""Links to Service Bus and Event Hubs that carry encoded messages, with the tokens and senders of Microsoft's SDKs."""
