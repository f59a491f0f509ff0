"""Checks vivavoce on a graphics card in at most 12 minutes: ``make gpu-check OUT=FOLDER``.

    python -m gpu_check --out FOLDER [--device cuda] [--first] [--quick]

Prints each line as it is known and keeps all in FOLDER, with a chart. Run again, it goes on with the steps
that are not done. ``--first`` runs the steps that decide most, in at most 6 minutes. ``--device cpu --quick``
tries all steps on a tiny bundle. Needs torch, and nothing that ``package_stand_ins`` lists.
"""

import argparse
import sys
from pathlib import Path

from gpu_check.chart import CHART_FILE, draw_chart
from gpu_check.schedule import DONE, CheckStep, python_command, run_steps
from gpu_check.table import first_hop_table

# In the order of what must not be missed.
FIRST_STEPS = (
    CheckStep("machine", 30),
    CheckStep("bundle", 75),
    CheckStep("streams", 165),
    CheckStep("profile", 45),
    CheckStep("accuracy", 45),
)
STEPS = (
    *FIRST_STEPS,
    CheckStep("xtts", 75),
    CheckStep("graphs", 100),
    CheckStep("version3", 50),
    CheckStep("limits", 50),
    CheckStep("serve", 85),
)


def main(arguments: list[str]) -> int:
    """Run the check; the exit code is 1 if a step did not end well."""
    parser = argparse.ArgumentParser(prog="python -m gpu_check")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--step", action="append", choices=[step.name for step in STEPS])
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    quick = ["--quick"] if options.quick else []
    results = run_steps(
        [
            step
            for step in (FIRST_STEPS if options.first else STEPS)
            if not options.step or step.name in options.step
        ],
        lambda name: python_command(
            "gpu_check.steps", name, str(options.out), "--device", options.device, *quick
        ),
        options.out,
        lambda line: print(line, flush=True),
    )
    findings = [each for result in results.values() for each in result.findings]
    for line in (*first_hop_table(findings), draw_chart(findings, options.out / CHART_FILE)):
        print(line)
    return 0 if all(result.status == DONE for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
