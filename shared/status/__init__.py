"""The status of tasks: what instances report of themselves, what their sources hold, and the two together."""
