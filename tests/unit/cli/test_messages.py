from collections import Counter

from busway import ROOT
from cli.demo.applications import encoded, sdk_message
from cli.demo.demo import WEBHOOKS
from cli.demo.messages import EAST, TYPED, WEST, Pattern, Template, samples, webhook_templates
from cli.demo.observations import deliveries
from cli.property_types import EXAMPLES
from shared.message.arrival import Origin
from shared.message.message import Message

TEMPLATES = [Template(b"one", "a"), Template(b"two", "b")]


def test_messages_are_spread_over_patterns_and_sites() -> None:
    made = samples(TEMPLATES, 2000)
    assert Counter((sample.pattern, sample.site) for sample in made) == {
        (Pattern.ALL_ACTIVE, WEST): 700,
        (Pattern.ALL_ACTIVE, EAST): 700,
        (Pattern.ACTIVE_PASSIVE, WEST): 300,
        (Pattern.SPILLOVER, WEST): 150,
        (Pattern.SPILLOVER, EAST): 150,
    }
    assert len({sample.message_id for sample in made}) == 2000


def test_jobs_fail_nowhere_on_one_site_and_on_both() -> None:
    jobs = [sample for sample in samples(TEMPLATES, 2000) if sample.pattern is Pattern.SPILLOVER]
    assert Counter((job.site, job.failures) for job in jobs) == {
        (site, failures): count for site in (WEST, EAST) for failures, count in ((0, 30), (1, 90), (2, 30))
    }
    places = {str(delivery.place) for job in jobs for delivery in deliveries(job)}
    assert places == {f"{site}/{queue}" for site in (WEST, EAST) for queue in ("jobs", "jobs-auxiliary")}


def test_numbers_count_the_messages_of_one_site_and_pattern() -> None:
    made = samples(TEMPLATES, 200)
    for pattern in Pattern:
        for site in (WEST, EAST):
            numbers = [sample.number for sample in made if (sample.pattern, sample.site) == (pattern, site)]
            assert numbers == list(range(1, len(numbers) + 1))


def test_messages_carry_every_property_type() -> None:
    made = samples(TEMPLATES, 20)
    assert {name for sample in made for name in sample.properties} == {f"{TYPED}{name}" for name in EXAMPLES}
    foreign = [sample for sample in made if sample.is_foreign]
    assert len(foreign) == 2
    assert all(f"{TYPED}char" in sample.properties for sample in foreign)


def test_recorded_webhooks_have_one_session_per_repository() -> None:
    templates = webhook_templates(ROOT / "node_modules" / WEBHOOKS)
    assert len(templates) == 329
    assert max(len(template.body) for template in templates) > 20_000
    sessions = Counter(template.session_id for template in templates)
    assert sessions["Codertocat/Hello-World"] == 230
    assert all(template.session_id for template in templates)


def test_a_foreign_message_has_the_same_fields_as_with_the_sdk() -> None:
    made = samples(webhook_templates(ROOT / "node_modules" / WEBHOOKS), 20)
    sample, plain = (next(each for each in made if each.is_foreign is is_foreign) for is_foreign in (True, False))
    message = Message.received(encoded(sample).content, Origin(sample.site, sample.pattern))
    assert dict(message.application_properties()) == sample.properties
    assert sdk_message(plain).message_id == plain.message_id
    assert message.session_id == sample.session_id
    assert message.body == sample.template.body
