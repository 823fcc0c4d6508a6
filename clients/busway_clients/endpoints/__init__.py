"""
Senders and receivers that follow a published endpoint, which an operator can change.

A source (`dns.DnsSource`, `file.FileSource`, `url.UrlSource`) reads the published endpoint, `watch.EndpointWatch` keeps
the last good answer, and `sender.FollowingSender` and `receiver.FollowingReceiver` use the namespace that it names.
The asynchronous classes are in `aio`.
"""
