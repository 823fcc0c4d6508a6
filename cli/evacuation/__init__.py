"""`busway evacuate`: move the messages of an entity or a namespace to another namespace."""
