"""Histories that failed once."""

KEPT = {
    (2178, "pair with sessions"): "the record of a later delivery, which was remembered as sent, hid a loss",
    (200, None): "outcomes that could not be recorded were forgotten: the night could not decide about what was sent",
    (27, "dead letters"): "the numbers of a target that was created again were taken for those of the one before",
    (384, None): "a replay whose looks had all failed noted a refused send as not sent, and forgot the doubt",
    (62, "repair of pair"): "a run noted what was in doubt as refused, and was killed: the next did not name it",
    (457, "repair of pair"): "a repair sent again what was in doubt, without an answer: the next named one copy alone",
}
"""
Why they failed, by their seeds and topologies (None: the one that the seed draws).

A change of topologies, sizes or faults changes what a seed makes; `mutants.yaml` has the faults, to find other seeds.
"""
