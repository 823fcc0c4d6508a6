"""Receiving encoded messages below the decoders of the SDKs: for the work on dead letters, and for `local/host`."""
