"""
Keeps the state of a namespace in a folder, so that it survives the process, even a kill -9.

1. `database` is the SQLite file: its schema, the checks when it is opened, and one translation of errors.
2. `changes` collects what the core reports to its `Recorder` and writes it in one transaction.
3. `loading` reads messages, events and session states back.
4. `entities` stores the configuration of entities and reconciles it with the configuration files.
5. `namespace_storage` opens a folder, builds the namespace from it, and commits once per turn of the event loop, before
   any request of that turn is answered.
"""
