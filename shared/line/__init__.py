"""The line of a task: from the trigger to the settled source."""
