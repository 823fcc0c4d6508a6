"""Builds what an app runs from its configuration: pipelines, journals, watches, the status."""
