"""`busway checkpoints`: how far the app has read an event hub, and the reset after the hub was created again."""
