"""Queues of an Azure storage account."""
