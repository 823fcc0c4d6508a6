"""Administration over HTTP: the ATOM API that the SDKs' administration clients speak, and a JSON API for tests."""
