"""Nightly job that reconciles journals; it runs on Spark 3.5 and later and imports nothing else of Busway."""
