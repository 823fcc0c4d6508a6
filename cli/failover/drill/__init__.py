"""
`busway failover drill`: an outage on this machine, with real processes and the clients that applications use.

`site/` is the configuration: two sites, and a task that carries copies from the first to the second.
"""
