"""What editors of keys, signatures and chains share: keys, JWE, JWS, what a signature is bound to."""
