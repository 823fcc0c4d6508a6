"""Azure on a laptop: the parts that stand in for the cloud during development and tests; none of them is deployed."""
