"""Runs of many histories on all cores, and what they found."""

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.history import History, Plan, run, silent
from tests.simulation.judgement import SHORT_SECONDS, Evidence, disagreements, judged

_CHUNK, _CHUNK_TO_STOP = 400, 50
"""The most histories that are judged together."""
_COLLECT_EVERY = 10


@dataclass
class Findings:
    """What came of some histories."""

    histories: int = 0
    messages: int = 0
    steps: int = 0
    virtual_seconds: float = 0.0
    judged: int = 0
    planted: int = 0
    """The histories with messages that were lost on purpose."""
    injected: Counter[str] = field(default_factory=Counter)
    topologies: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[Plan, tuple[str, ...]]] = field(default_factory=list)
    proofs: list[Evidence] = field(default_factory=list)
    """The first that the job is to judge as well, of those that are short enough for that."""

    def add(self, history: History) -> None:
        """Count a history."""
        self.histories += 1
        self.messages += history.messages
        self.steps += history.steps
        self.virtual_seconds += history.seconds
        self.injected += history.injected
        self.topologies[history.topology] += 1
        if history.objections:
            self.violations.append((history.plan, history.objections))

    def merge(self, other: "Findings") -> None:
        """Add what other histories found."""
        self.histories += other.histories
        self.messages += other.messages
        self.steps += other.steps
        self.virtual_seconds += other.virtual_seconds
        self.judged += other.judged
        self.planted += other.planted
        self.injected += other.injected
        self.topologies += other.topologies
        self.violations += other.violations
        self.proofs += other.proofs


def find(seeds: range, topology: str | None = None, *, stops: bool = False, keeps: int = 0) -> Findings:
    """
    Make the histories of *seeds* and judge them together; *stops*: at the first violation of an oracle.

    *keeps* is how many proofs of theirs it returns at most.
    """
    findings = Findings()
    proofs: list[Evidence] = []
    gc.disable()
    gc.freeze()  # the modules, which a collection would look at each time
    with silent():
        for count, seed in enumerate(seeds):
            history = run(Plan(seed, topology), seed)
            findings.add(history)
            if history.evidence is not None:
                proofs.append(history.evidence)
                if len(findings.proofs) < keeps and history.seconds < SHORT_SECONDS:
                    findings.proofs.append(history.evidence)
            if stops and history.objections:
                break
            if count % _COLLECT_EVERY == 0:
                gc.collect()
    gc.unfreeze()
    gc.enable()
    if not proofs or (stops and findings.violations):
        return findings
    verdicts = judged(proofs)
    for proof in proofs:
        findings.judged += 1
        findings.planted += bool(proof.lost)
        found = tuple(disagreements(proof, verdicts[proof.number]))
        if found:
            findings.violations.append((Plan(proof.number, topology), found))
    return findings


def run_all(
    first: int,
    histories: int,
    *,
    topology: str | None = None,
    seconds: float | None = None,
    processes: int = 2,
    stops: bool = False,
    keeps: int = 0,
) -> Iterator[Findings]:
    """
    Yield the findings of chunks of *histories*, whose seeds begin with *first*, as they come.

    It ends early when *seconds* have passed, or with *stops* at the first violation. The proofs of *keeps* of
    them, or some more, are among the findings.
    """
    end = None if seconds is None else time.monotonic() + seconds
    size = _CHUNK_TO_STOP if stops else max(1, min(_CHUNK, -(-histories // (4 * processes))))
    chunks = [range(at, min(at + size, first + histories)) for at in range(first, first + histories, size)]
    # Each chunk gives its share of them: a run that ends early need not have the first chunks.
    chunk = _Chunk(topology, stops=stops, keeps=-(-keeps // max(1, len(chunks))))
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=40) as pool:
        jobs = iter(pool.imap_unordered(chunk, chunks))
        for findings in jobs:
            yield findings
            if (stops and findings.violations) or (end is not None and time.monotonic() > end):
                pool.terminate()
                return


class _Chunk:
    """Makes one chunk, in a process of the pool."""

    def __init__(self, topology: str | None, *, stops: bool, keeps: int) -> None:
        self._topology = topology
        self._stops = stops
        self._keeps = keeps

    def __call__(self, seeds: range) -> Findings:
        return find(seeds, self._topology, stops=self._stops, keeps=self._keeps)
