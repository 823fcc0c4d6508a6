"""
What happens to each part of a message on its way, found out by sending it.

`specimens` are the messages, one for each thing that may happen; `journeys` sends them over the local broker, through
the function app in the local host, and reads what has arrived; `table` says it in words. `python -m tests.fidelity`
prints the table of the README, tests/end_to_end/test_fidelity.py compares.
"""
