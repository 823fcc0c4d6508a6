"""Shared by the editors that use keys: secrets with keys, JWE, JWS, bound properties, links of chains."""
