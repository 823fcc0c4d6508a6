"""What editors keep outside of a message: ids that were sent, bodies put aside."""
