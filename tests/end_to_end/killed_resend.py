"""A resend in processes of its own that are killed on their way, and what must hold at the end."""

import random
import signal
import time
from collections import Counter

from shared.amqp.values import long
from tests.end_to_end.dead_letter_site import DeadLetterSite, ids, property_of
from tests.messages import delivered

SESSIONS = 20
_PER_SECOND = 700
_POLL_SECONDS = 0.01


def resend_with_kills(site: DeadLetterSite, count: int, kills: int, seed: int) -> None:
    """
    Resend *count* dead letters to a queue, killed *kills* times at random moments after messages were sent.

    Nothing consumes from the target, so `--unclear send` is right for what the evidence leaves open.
    """
    chance = random.Random(seed)
    contents = [
        delivered(n, session_id=f"s-{n % SESSIONS}", named={"n": long(n)}, body=b"x" * 500) for n in range(count)
    ]
    site.bury("orders", contents)
    command = ("dead", "resend", "west/orders", "--all", "--to", "east/sessions", "--wait", "30", "--yes")
    for number in range(kills):
        arrived = len(site.there("east/sessions"))
        process = site.start(*command, "--rate", str(_PER_SECOND), "--unclear", "send" if number % 2 else "leave")
        least = (count - arrived) // (kills - number + 1)
        while process.poll() is None and len(site.there("east/sessions")) < arrived + min(least, 300) * 0.5:
            time.sleep(_POLL_SECONDS)
        time.sleep(chance.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, (out, err)
        assert_nothing_is_lost_or_doubled(site, count)
    process = site.start(*command, "--unclear", "send")
    out, err = process.communicate()
    assert process.returncode == 0, (out, err)
    assert_nothing_is_lost_or_doubled(site, count)
    assert site.dead() == []
    assert len(site.there("east/sessions")) == count


def assert_nothing_is_lost_or_doubled(site: DeadLetterSite, count: int) -> None:
    """Assert that each message is in one of the two queues or in both, once each, and in order per session."""
    arrived = site.there("east/sessions")
    names = ids(arrived)
    assert max(Counter(names).values(), default=1) == 1
    assert {*names, *ids(site.dead())} == {f"m-{n}" for n in range(count)}
    by_session: dict[str | None, list[int]] = {}
    for message in arrived:
        by_session.setdefault(message.session_id, []).append(property_of(message, "n"))
    for numbers in by_session.values():
        assert numbers == sorted(numbers)
