"""`busway dead` and `busway rejects`: list, inspect, resend, export and drop messages that were given up."""
