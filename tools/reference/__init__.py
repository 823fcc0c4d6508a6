"""The generator of the reference: pages and schemas from models, docstrings and golden cases."""
