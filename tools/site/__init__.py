"""The site of the documentation: its navigation, its packages and its configuration."""
