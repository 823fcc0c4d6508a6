"""Administration over HTTP: the ATOM API of the SDKs' administration clients, and a JSON API for tests."""
