"""
`busway demo`: two sites, real messages, and a check of what arrives.

1. `messages` makes what is sent, from recorded webhooks or from a file (`template_file`), with every property type
   (`property_types`).
2. `sender` and `consumers` are the applications on both sites, written with Microsoft's own SDK.
3. `expectations` compares what was sent with what arrived; it does no I/O. `report` prints the result.
4. `demo` is the whole run.
"""
