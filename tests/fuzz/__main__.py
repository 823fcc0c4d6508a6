"""Run one fuzz for a while and print what was seen: `python -m tests.fuzz editors --seconds 60 --seed 1`."""

import argparse
import sys
import time

from tests.fuzz import amqp, editors, frames, tasks

RUNS = {"amqp": amqp.run, "editors": editors.run, "frames": frames.run, "tasks": tasks.run}

parser = argparse.ArgumentParser(description="Feed damaged input to codecs, rules, editors, tasks and a broker.")
parser.add_argument("fuzz", choices=RUNS)
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--seed", type=int, default=time.time_ns())
options = parser.parse_args()
sys.stdout.write(f"seed {options.seed}\n")
verdicts = RUNS[options.fuzz](options.seed, seconds=options.seconds)
sys.stdout.write(
    f"{verdicts.total()} cases: {', '.join(f'{count} {each}' for each, count in verdicts.most_common())}\n"
)
