"""The nightly job that proves from journals what arrived; it runs on Spark 3.5 and later and uses nothing of Busway."""
