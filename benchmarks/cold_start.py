"""
The import of the app with the tasks of the demo, as a worker does it at a cold start, beside that of its two SDKs.

Processor time and memory of processes of their own, in turns; the least of five.
"""

import os
import subprocess
import sys
from typing import NamedTuple

from benchmarks.measurement import Measurement, report
from benchmarks.stack import FOLDER

ROUNDS = 5
SDKS = "import azure.functions, azure.servicebus"
APP = "import function_app"
# Both settings of the demo's connections; nothing is opened while the app is imported.
NOWHERE = "Endpoint=sb://localhost;SharedAccessKeyName=none;SharedAccessKey=none;UseDevelopmentEmulator=true"
_REPORT = """
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


class Cost(NamedTuple):
    """What an import takes."""

    seconds: float
    megabytes: float


def cost(imports: str) -> Cost:
    """Return the cost of *imports* in a new process, the start of Python included."""
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", imports + _REPORT],
        cwd=FOLDER,
        env={**os.environ, "WEST": NOWHERE, "EAST": NOWHERE},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds, megabytes = map(float, done.stdout.split())
    return Cost(seconds, megabytes)


def main() -> None:
    """Measure both, and the ratio."""
    rounds = [(cost(SDKS), cost(APP)) for _ in range(ROUNDS)]
    sdks = min(each for each, _ in rounds)
    app = min(each for _, each in rounds)
    report(
        [
            Measurement("import of azure.functions and azure.servicebus", sdks.seconds, "s"),
            Measurement("import of the app with the demo's tasks", app.seconds, "s", 0.7),
            Measurement("  over the import of its SDKs", app.seconds / sdks.seconds, "times", 2.5),
            Measurement("  memory", app.megabytes, "MB", 70),
        ]
    )


if __name__ == "__main__":
    main()
