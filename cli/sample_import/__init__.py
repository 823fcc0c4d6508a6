"""`busway import`: task files from the function.json files of Microsoft's C# sample."""
