"""Histories that failed once."""

KEPT = {
    96: "the record of a later delivery, which the instance remembered as sent, hid the loss of the copy at its target",
    685: "outcomes that could not be recorded were forgotten: the night could not decide about what was sent",
}
"""
Why they failed, by their seeds.

A change of topologies, sizes or faults changes what a seed makes; `mutants.yaml` has both faults, to find other seeds.
"""
