"""The nightly reconciliation in the app: start the job, wait for its result, report it."""
