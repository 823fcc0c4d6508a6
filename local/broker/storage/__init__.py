"""
The state of a namespace in a folder, so that it outlives the process: what was accepted is there after a kill -9.

1. `log` is a file of checksummed frames; a frame is written at once and is either there or not.
2. `records` are what frames hold: the changes that the core tells its `Recorder` of, and `state` what they add up to.
3. `entities` keeps the configuration of entities, and settles it with the files that the broker is started with.
4. `store` opens a folder, turns its log into a namespace, writes what changes in one frame for each turn of the event
   loop before anyone is answered, and rewrites the log when most of it is history.
"""
