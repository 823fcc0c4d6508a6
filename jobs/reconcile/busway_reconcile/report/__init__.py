"""Reporting: the summary, the tables, the page and the manifest for `busway repair`."""
