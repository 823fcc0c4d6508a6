# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
