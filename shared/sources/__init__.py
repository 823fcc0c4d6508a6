"""What Busway asks of the entities that it takes from; one file per kind of source."""
