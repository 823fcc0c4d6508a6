"""
Measures what happens to each part of a message on each route, by sending it.

`specimens` has the messages, one for each part. `journeys` sends them over the local broker and the function app in the
local host, and reads what arrives. `table` describes the results. `python -m tests.fidelity` prints the table of
docs/fidelity.md; tests/end_to_end/test_fidelity.py compares the two.
"""
