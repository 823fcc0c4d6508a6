"""
Public test suites for the formats that editors read: JSON, JMESPath, CBOR, MessagePack, encrypted and signed content.

`make suites` runs them and fetches nothing: it takes whole suites from the checkouts in the folder that BUSWAY_SUITES
names, each under the name of its repository, and without one the excerpts here, which have the same format and were
written for this project.
"""
