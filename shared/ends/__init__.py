"""One folder for each kind of end that Busway takes messages from or sends them to; loose modules serve several."""
