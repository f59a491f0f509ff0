"""``vivavoce finetune prepare | train | evaluate | export``: a CosyVoice voice of one's own recordings."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import DEVICE, CommandGroup

if TYPE_CHECKING:  # rich is imported where it is used, so that --help is fast
    from rich.progress import Progress

    from ....tts_engine.cosyvoice.finetuning.training import TrainingStep

_FOLDER = click.Path(path_type=Path)
_INTERRUPTED = "Interrupted; the same command continues."
_RUN = click.argument("run", type=_FOLDER)


@click.group(cls=CommandGroup)
def finetune() -> None:
    """Train CosyVoice 2 or 3 further, on recordings of a voice."""


@contextmanager
def _stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Whether Control-C or SIGTERM came: the first one asks to stop, a second one interrupts."""
    wanted = threading.Event()
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask_to_stop(number: int, frame: object) -> None:
        wanted.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in previous:
        signal.signal(number, ask_to_stop)
    try:
        yield wanted.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _progress(label: str) -> "Iterator[Progress]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    # Under torchrun the first process draws.
    is_first = "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("RANK") == "0"
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not is_first) as progress:
        yield progress


@finetune.command(
    epilog="Example: vivavoce finetune prepare recordings --bundle CosyVoice2-0.5B --out dataset"
)
@click.argument("recordings", type=_FOLDER)
@click.option("--bundle", type=_FOLDER, required=True, metavar="DIR", help="What is to be trained.")
@click.option(
    "--out", type=_FOLDER, required=True, metavar="DATASET", help="A new folder, or one to continue."
)
def prepare(recordings: Path, bundle: Path, out: Path) -> None:
    """Make a data set of a folder of recordings and transcripts; a second run does what is new."""
    from ....tts_engine.cosyvoice.finetuning.errors import finetuning_errors

    with finetuning_errors(), _progress("preparing") as progress, _stop_on_signal() as stop:
        from ....tts_engine.cosyvoice.finetuning.preparation import prepare as prepare_dataset
        from .pages import write_preparation_page

        bar = progress.add_task("", total=None)
        report = prepare_dataset(
            recordings,
            bundle,
            out,
            on_progress=lambda done, total: progress.update(bar, completed=done, total=total),
            should_stop=stop,
        )
        write_preparation_page(report, out / "report.html")
    for name, why in report.left_out.items():
        click.echo(f"left out: {name}: {why}")
    click.echo(
        f"{report.kept} recordings kept, {report.seconds / 60:.1f} minutes, {report.new} of them new; "
        f"{len(report.left_out)} left out; see {out / 'report.html'}"
    )
    if not report.is_complete:
        click.echo(_INTERRUPTED)
        return
    if report.is_short:
        click.echo("Less than 30 minutes: the voice may not be learnt; an hour is a good start.", err=True)
    click.echo(f"Next: vivavoce finetune train {out} --part lm --out {out}-lm")


@finetune.command(epilog="Example: vivavoce finetune train dataset --part lm --out run-lm")
@click.argument("dataset", type=_FOLDER)
@click.option("--part", type=click.Choice(["lm", "flow", "vocoder"]), required=True, help="What is trained.")
@click.option("--out", "run", type=_FOLDER, required=True, metavar="RUN", help="New, or a run to continue.")
@click.option("--bundle", type=_FOLDER, metavar="DIR", help="[default: the one of prepare]")
@click.option(
    "--full", "whole", is_flag=True, help="Train all of the language model, not adapters beside it."
)
@click.option(
    "--rank",
    "adapter_rank",
    type=click.IntRange(1, 256),
    default=16,
    show_default=True,
    help="Of the adapters.",
)
@click.option("--learning-rate", type=float, help="[default: 1e-5; of adapters 1e-4, of the vocoder 2e-4]")
@click.option("--epochs", type=click.IntRange(1), default=10, show_default=True)
@click.option("--max-steps", type=click.IntRange(1), help="End earlier.")
@click.option(
    "--max-frames",
    type=click.IntRange(100),
    default=2000,
    show_default=True,
    help="Mel frames of a batch, 50 a second.",
)
@click.option("--accumulate", type=click.IntRange(1), default=2, show_default=True, help="Batches of a step.")
@click.option(
    "--averaging",
    type=click.FloatRange(0, 0.99999),
    default=0.999,
    show_default=True,
    help="Decay of the averaged weights; 0: none.",
)
@click.option("--bf16", is_flag=True, help="Compute products in bfloat16.")
@click.option("--seed", type=click.IntRange(0), default=1986, show_default=True)
@DEVICE
def train(
    dataset: Path,
    run: Path,
    bundle: Path | None,
    device: str | None,
    **choices: object,
) -> None:
    """Train a part on a data set, or continue a run. Control-C writes a checkpoint and ends.

    On several cards: torchrun --nproc-per-node 4 $(which vivavoce) finetune train ...
    """
    from ....tts_engine.cosyvoice.finetuning.errors import finetuning_errors

    with finetuning_errors(), _progress("training") as progress, _stop_on_signal() as stop:
        from ....tts_engine.cosyvoice.finetuning.training import TrainingChoices
        from ....tts_engine.cosyvoice.finetuning.training import train as train_part

        bar = progress.add_task("", total=None)

        def show(step: "TrainingStep") -> None:
            text = f"loss {step.loss:.4g}"
            if step.validation_loss is not None:
                progress.console.print(
                    f"step {step.step}: validation {step.validation_loss:.4g}", highlight=False
                )
            progress.update(bar, completed=step.step, total=step.total_steps, description=text)

        finished = train_part(
            dataset,
            bundle,
            run,
            TrainingChoices(**choices),  # type: ignore[arg-type]
            device=device or "auto",
            on_step=show,
            on_notice=lambda sentence: progress.console.print(sentence, highlight=False),
            should_stop=stop,
        )
    if not finished.is_first_process:
        return
    place = finished.place
    curves = f"; curves in {finished.curves}" if finished.curves else ""
    click.echo(f"{run}: {place.step} steps, validation loss {place.validation_loss}{curves}")
    if finished.is_complete:
        click.echo(f"Next: vivavoce finetune evaluate {run} --choose")
    else:
        click.echo(_INTERRUPTED)


@finetune.command(epilog="Example: vivavoce finetune evaluate run-lm --choose")
@_RUN
@click.option("--sentences", type=click.IntRange(1), default=20, show_default=True, help="Held-out ones.")
@click.option("--choose", is_flag=True, help="Choose the checkpoint that export takes.")
@click.option("--language", metavar="CODE", help="Of the recogniser.  [default: found by it]")
@click.option("--whisper", type=_FOLDER, metavar="DIR", help="A Whisper model.  [default: tiny.en]")
@click.option("--without-base", is_flag=True, help="Do not speak with the untrained bundle.")
def evaluate(
    run: Path,
    sentences: int,
    choose: bool,
    language: str | None,
    whisper: Path | None,
    without_base: bool,
) -> None:
    """Speak held-out sentences; count wrong words and compare the voice, with the base and the recordings."""
    from ....tts_engine.cosyvoice.finetuning.errors import finetuning_errors

    with finetuning_errors(), _progress("speaking") as progress, _stop_on_signal() as stop:
        from ....tts_engine.cosyvoice.finetuning.evaluation_run import evaluate_run
        from ...transcription import WhisperRecogniser
        from .pages import write_evaluation_page

        bar = progress.add_task("", total=None)
        found = evaluate_run(
            run,
            WhisperRecogniser(whisper, language),
            sentences=sentences,
            choose=choose,
            with_base=not without_base,
            on_progress=lambda done, total: progress.update(bar, completed=done, total=total),
            should_stop=stop,
        )
        if found is None:
            click.echo(_INTERRUPTED)
            return
        write_evaluation_page(found.figures, found.spoken, run / "evaluation.html")
    for name, one in found.by_checkpoint.items():
        mark = " *" if name == found.checkpoint else ""
        click.echo(
            f"{name}: {one.wrong_percent:.1f} % of the words wrong, similarity {one.similarity:.3f}{mark}"
        )
    for one in found.figures:
        click.echo(f"{one.source:22} {one.wrong_percent:6.1f} % wrong   similarity {one.similarity:.3f}")
    click.echo(f"{found.checkpoint}; every sentence to hear in {run / 'evaluation.html'}")
    click.echo(f"Next: vivavoce finetune export {run} --out my-voice --voice NAME")


@finetune.command(epilog="Example: vivavoce finetune export run-lm run-flow --out my-voice --voice anna")
@click.argument("runs", type=_FOLDER, nargs=-1, required=True, metavar="RUN...")
@click.option("--out", type=_FOLDER, required=True, metavar="BUNDLE", help="A new folder.")
@click.option("--voice", metavar="NAME", help="Name of the voice.  [default: the speaker's]")
@click.option(
    "--checkpoint", metavar="STEP", help="Such as step-00000200.  [default: the chosen or last one]"
)
def export(runs: tuple[Path, ...], out: Path, voice: str | None, checkpoint: str | None) -> None:
    """Write a bundle that serve and say speak with, of the runs that trained its parts."""
    from rich.console import Console

    from ....tts_engine.cosyvoice.finetuning.errors import finetuning_errors

    with finetuning_errors(), Console(stderr=True).status("writing"):
        from ....tts_engine.cosyvoice.finetuning.exporting import export_runs, open_run

        names = export_runs([open_run(run, checkpoint) for run in runs], out, voice)
    click.echo(f"{out}: a bundle with the voice {', '.join(names)}")
    click.echo(f'Next: vivavoce say --bundle {out} --voice {names[0]} "Good morning."')
