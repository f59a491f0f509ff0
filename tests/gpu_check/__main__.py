"""Checks vivavoce on a graphics card in at most 25 minutes: ``make gpu-check OUT=FOLDER``.

    python -m gpu_check --out FOLDER [--device cuda] [--quick]

Prints each line as it is known and keeps all in FOLDER, with a chart. Run again, it goes on with the steps
that are not done. ``--device cpu --quick`` tries all steps on a tiny bundle. Needs torch, and what CosyVoice
needs.
"""

import argparse
import sys
from pathlib import Path

from gpu_check.chart import CHART_FILE, draw_chart
from gpu_check.schedule import DONE, CheckStep, python_command, run_steps

# 24.5 minutes.
STEPS = (
    CheckStep("machine", 120),
    CheckStep("accuracy", 180),
    CheckStep("bundle", 120),
    CheckStep("graphs", 240),
    CheckStep("version3", 90),
    CheckStep("streams", 360),
    CheckStep("serve", 180),
    CheckStep("profile", 90),
    CheckStep("limits", 90),
)


def main(arguments: list[str]) -> int:
    """Run the check; the exit code is 1 if a step did not end well."""
    parser = argparse.ArgumentParser(prog="python -m gpu_check")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--step", action="append", choices=[step.name for step in STEPS])
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    quick = ["--quick"] if options.quick else []
    results = run_steps(
        [step for step in STEPS if not options.step or step.name in options.step],
        lambda name: python_command(
            "gpu_check.steps", name, str(options.out), "--device", options.device, *quick
        ),
        options.out,
        lambda line: print(line, flush=True),
    )
    print(
        draw_chart(
            (each for result in results.values() for each in result.findings), options.out / CHART_FILE
        )
    )
    return 0 if all(result.status == DONE for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
