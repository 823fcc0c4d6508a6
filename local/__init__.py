"""Azure on a laptop: the broker and the Functions host for development and tests; never deployed."""
