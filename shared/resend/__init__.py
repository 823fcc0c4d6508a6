"""
The one engine that sends messages again: what was given up, what is missing, and what moves to another namespace.

    source → selection → edits → delivery → ledger → settlement

1. A `source` gives messages: the entity that has them, locked (`receiver`), or copies that stay where they are: a file,
   a hub, the copies that a journal leads to (`source.copies`).
2. A `selection` says which of them; `inventory` finds those of an entity by peeking, before anything is received.
3. The `edits` are made to each message, and the `routing` says where it goes.
4. A `delivery` sends: to an entity, through the pipeline of a task, or nowhere, if messages are only to be removed.
5. The `ledger` has each step before the next one is taken. After an interruption, `evidence` finds out what arrived.
6. The source is settled last.

`run.Run` is all of it. Commands, and the dashboard's resend (`step`), are definitions: a supply of messages, and a
delivery with its ledger. An evacuation overrides steps of `delivery.TargetDelivery`.
"""
