"""
Makes histories, and prints what they found: `make simulate histories=10000`, `make simulate seed=4711`.

Exit code 0: no violation. 1: at least one, with its seed.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence

_HASH_SEED = "PYTHONHASHSEED"
_MOST_SHOWN = 3
_WIDTH = 80
_MANY, _MOST_BY_JOB = 2_000, 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=2_000, help="how many (2000)")
    parser.add_argument("--seconds", type=float, help="end when these seconds have passed")
    parser.add_argument("--first", type=int, help="the first seed; without it a new one, which is printed")
    parser.add_argument("--seed", type=int, help="make this one history and print its report")
    parser.add_argument("--topology", help="of this topology only")
    parser.add_argument("--faults", type=int, help="with --seed: only its first faults")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mutant", help="with a fault of this name in the product; see tests/simulation/mutants.py")
    parser.add_argument("--stop", action="store_true", help="end at the first violation")
    parser.add_argument("--spark", type=int, help="the job on Spark judges so many too (200 of 2000 and more)")
    options = parser.parse_args(arguments)
    if options.mutant is not None:
        from tests.simulation.mutants import mutants, plant  # noqa: PLC0415 - before the product is imported

        if options.mutant not in {mutant.name for mutant in mutants()}:
            parser.error(f"--mutant: {options.mutant!r} is not in mutants.yaml")
        plant(options.mutant)
    from tests.simulation.history import BY_NAME, Plan  # noqa: PLC0415 - after the mutant is planted
    from tests.simulation.story import report_of  # noqa: PLC0415 - likewise

    if options.topology is not None and options.topology not in BY_NAME:
        parser.error(f"--topology: {options.topology!r}, expected one of {', '.join(BY_NAME)}")

    if options.seed is not None:
        for line in report_of(Plan(options.seed, options.topology, options.faults)):
            print(line)
        return 0
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from tests.simulation.history import Plan  # noqa: PLC0415 - after the mutant is planted
    from tests.simulation.runs import Findings, run_all  # noqa: PLC0415 - as above
    from tests.simulation.story import report_of  # noqa: PLC0415 - as above

    first = options.first if options.first is not None else random.SystemRandom().randrange(10**9)
    print(f"seeds from {first} on", flush=True)
    keeps = options.spark if options.spark is not None else _MOST_BY_JOB if options.histories >= _MANY else 0
    started = time.monotonic()
    total = Findings()
    for findings in run_all(
        first,
        options.histories,
        topology=options.topology,
        seconds=options.seconds,
        processes=options.processes,
        stops=options.stop,
        keeps=keeps,
    ):
        total.merge(findings)
        if sys.stderr.isatty():
            print(f"\r{total.histories:,} histories, {len(total.violations)} violations", end="", file=sys.stderr)
    seconds = time.monotonic() - started
    if total.proofs and not (options.stop and total.violations):
        from tests.simulation.job_judgement import judged_wrongly  # noqa: PLC0415 - Spark takes a second to import

        wrong = judged_wrongly(total.proofs)
        total.violations += [(Plan(number, options.topology), texts) for number, texts in wrong.items()]
        print(f"{len(total.proofs):,} of them judged by the job itself, on Spark")
    print(f"{total.histories:,} histories in {seconds:.0f} s: {total.histories / seconds:.0f} a second")
    print(f"{total.messages:,} messages, {total.virtual_seconds / 86_400:,.0f} virtual days, {total.steps:,} steps")
    print(f"{total.judged:,} judged by the night, {total.planted:,} of them with losses that were planted")
    print(f"{'topology':<52}{'histories':>12}")
    for topology, count in total.topologies.most_common():
        print(f"{topology:<52}{count:>12,}")
    print(f"{'fault':<52}{'injected':>12}")
    for what, count in total.injected.most_common():
        print(f"{what:<52}{count:>12,}")
    print(f"{'violations':<52}{len(total.violations):>12,}")
    for plan, objections in sorted(total.violations, key=lambda violation: violation[0].seed)[:_MOST_SHOWN]:
        print("-" * _WIDTH)
        print(f"make simulate seed={plan.seed}" + (f" topology='{plan.topology}'" if plan.topology else ""))
        print(f"  {objections[0]}")
        for line in report_of(Plan(plan.seed, plan.topology)):
            print(line)
    return 1 if total.violations else 0


if __name__ == "__main__":
    if os.environ.get(_HASH_SEED) != "0":
        # The order of sets is to be the same in every process.
        os.execve(  # noqa: S606 - this command again
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], os.environ | {_HASH_SEED: "0"}
        )
    sys.exit(main())
