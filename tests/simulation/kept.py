"""Histories that failed once."""

KEPT = {
    (1283, "pair with sessions"): "the record of a later delivery, which was remembered as sent, hid a loss",
    (169, None): "outcomes that could not be recorded were forgotten: the night could not decide about what was sent",
    (27, "dead letters"): "the numbers of a target that was created again were taken for those of the one before",
    (62, "repair of pair"): "a run noted what was in doubt as refused, and was killed: the next did not name it",
    (142, "repair of pair"): "a repair sent again what was in doubt, without an answer: the next named one copy alone",
    (380881, None): "what could not be noted was noted as the next message of a repair, which then was not sent",
    (149, None): "the locks of a batch had ended and could not be renewed, and it was sent all the same",
    (545, None): "a message that another envelope had brought was delivered twice, and was taken for a duplicate",
    (
        581883,
        None,
    ): "the record of a result took longer than a lock, and the reject of another target was sent after it",
    (
        928757,
        None,
    ): "a message that was locked at the target was behind one that was unclear: the run ended with a fault",
}
"""
Why they failed, by their seeds and topologies (None: the one that the seed draws).

A change of topologies, sizes or faults changes what a seed makes; `mutants.yaml` has the faults, to find other seeds.
"""
