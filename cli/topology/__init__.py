"""The entities that tasks need: what they are, what a namespace has, and how to get from one to the other."""
