"""`python -m tests.faults [WORD …]`: run all scenarios, or those whose name contains a WORD, and print a table."""

import sys
from concurrent.futures import Future, ThreadPoolExecutor

from tests.faults.catalogue import CONCURRENT_SCENARIOS, SCENARIOS
from tests.faults.scenario import Row
from tests.faults.table import table


def main(words: list[str]) -> int:
    """Return the exit code: 1 if a scenario failed, 2 if no name has one of *words*."""
    chosen = [scenario for scenario in SCENARIOS if not words or any(word in str(scenario) for word in words)]
    if not chosen:
        sys.stderr.write(f"no scenario's name has one of the words {', '.join(words)}; without words, all run\n")
        return 2
    with ThreadPoolExecutor(CONCURRENT_SCENARIOS) as pool:
        running = {pool.submit(scenario.run): scenario for scenario in chosen}
    failed = {scenario: error for future, scenario in running.items() if (error := future.exception()) is not None}
    rows = [future.result() for future in running if _has_row(future)]
    problems = [f"{scenario}: failed: {error}" for scenario, error in failed.items()]
    problems += [f"{row.scenario}: {objection}" for row in rows for objection in row.objections()]
    sys.stdout.writelines(f"{line}\n" for line in (*table(rows), *problems))
    return 1 if problems else 0


def _has_row(future: "Future[Row]") -> bool:
    return future.exception() is None


sys.exit(main(sys.argv[1:]))
