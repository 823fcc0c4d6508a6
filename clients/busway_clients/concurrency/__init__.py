"""
What waits, for both kinds of clients: `tasks` is for asyncio, `threads` has the same names for synchronous code.

Only these two modules are written twice. The rest of the asynchronous code, in `aio`, is rewritten by
`tools/generate-sync-clients` into the synchronous code in `_sync`.
"""
