"""Histories that failed once."""

KEPT = {
    96: "the record of a later delivery, which the instance remembered as sent, hid the loss of the copy at its target",
    685: "outcomes that could not be recorded were forgotten: the night could not decide about what was sent",
    637: "a run looked at the target before what a killed process had sent arrived there: the message was sent again",
    264635172: "an evacuation took the dead letters that it had set aside for proof that a later one was not sent",
    264637126: "an evacuation took the numbers of dead letters that it had set aside for messages that somebody took",
    932: "the numbers of a target that was deleted and created again were taken for those of the one before",
    356: "a look at a queue that failed once counted as one that found nothing: a replay sent again what was there",
    897341746: "a repair took a message for another one, whose copy had the same number in another entity",
    897328366: "a replay whose looks had all failed noted a refused send as not sent, and forgot the doubt",
    967715458: "the night took two copies for one: their target was created again, and gave both the same number",
    41607351: "a repair sent again what was in doubt, got no answer, and the next one named one copy alone",
    1230: "a run noted what was in doubt as refused, and was killed: the next repair did not name it",
}
"""
Why they failed, by their seeds.

A change of topologies, sizes or faults changes what a seed makes; `mutants.yaml` has the faults, to find other seeds.
"""
