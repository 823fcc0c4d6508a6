"""The nightly reconciliation as the app sees it: a job to start, a result to wait for, and somebody to tell."""
