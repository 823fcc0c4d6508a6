"""
Which namespace to use now, looked up where an operator can change it, and senders and receivers that follow.

A source (`dns.DnsSource`, `file.FileSource`, `url.UrlSource`) reads what is published; `watch.EndpointWatch` keeps the
last good answer; `sender.FollowingSender` and `receiver.FollowingReceiver` are clients of the namespace that it names.
The asynchronous ones are in `aio`.
"""
