"""The same for asyncio; sources, cache and rules are those of the package above."""
