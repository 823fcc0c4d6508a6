"""The service through which a function settles and renews what its host holds."""
