"""Makes the small bundle from nothing: ``python -m small_voice OUT``, with PYTHONPATH=tests.

Parts that are done are kept in OUT and not made again; a part that was ended goes on from its last
checkpoint. With ``--from`` a packed bundle, its tokenizers are kept and its networks are trained further.
"""

import argparse
import shutil
import tempfile
from itertools import islice
from pathlib import Path

import torch

from small_voice import bundle, listen, world
from small_voice.recipe import PARTS, SEED, SENTENCES, Workplace, begin_from, make_all, make_part
from vivavoce.models.cosyvoice.training.bundle_parts import WEIGHT_FILES

UNSEEN_SEED = 2
_FIGURES = "figures.md"
_WRITERS = {"vocoder": bundle.write_vocoder, "flow": bundle.write_flow, "lm": bundle.write_language_model}


def write_unfinished(folder: Path, target: Path) -> list[bundle.PackedPart]:
    """Write a bundle of what the checkpoints have so far into ``target``; returns how far each part is."""
    place, parts = Workplace(folder), []
    shutil.copytree(place.bundle, target, dirs_exist_ok=True)
    for part, write in _WRITERS.items():
        if not place.checkpoint(part).exists() and place.start.exists():
            shutil.copy2((place.start / WEIGHT_FILES[part]).with_suffix(".safetensors"), target)
            continue
        saved = torch.load(place.checkpoint(part), weights_only=True)
        parts.append(bundle.PackedPart(part, saved["step"], saved["steps"], place.start.exists()))
        write(target, saved["average"])
    return parts


def pack(folder: Path, target: Path) -> None:
    """Write the bundle of a run, finished or not, as a folder to give away."""
    figures = folder / _FIGURES
    with tempfile.TemporaryDirectory() as made:
        parts = write_unfinished(folder, Path(made))
        size = bundle.pack(Path(made), target, parts, figures.read_text("utf-8") if figures.exists() else "")
    for part in parts:
        print(f"{part.name}: step {part.step} of {part.steps}")
    missing = "" if figures.exists() else ", without figures: --listen first"
    print(f"{target}: {size / 1e6:.1f} MB{missing}")


def hear(folder: Path, count: int, of_ways: bool = False, whisper: Path | None = None) -> None:
    """Print the words wrong in unseen sentences, part by part, and keep them for the card of the bundle.

    of_ways: of each way to speak the bundle instead. whisper: as of ``listen.words_wrong``.
    """
    heard = folder / "unfinished"
    for one in write_unfinished(folder, heard):
        print(f"{one.name}: step {one.step} of {one.steps}")
    sentences = listen.unseen_sentences(count, UNSEEN_SEED, islice(world.sentences(SEED), SENTENCES))
    head = [f"Words wrong in {count} unseen sentences:", "", "| speech of | wide band | u-law |"]
    rows = [*head, "|---|---|---|"]
    speech_of = listen.speech_of_ways if of_ways else listen.speech_of_parts
    for name, speech in speech_of(heard, sentences):
        figures = []
        for channel_name, channel in listen.CHANNELS.items():
            wrong = listen.words_wrong(sentences, speech, channel, print, whisper)
            figures.append(f"{wrong:.1f} %")
            print(f"{name:14} {channel_name:10} {wrong:5.1f} % words wrong of {count} sentences", flush=True)
        rows.append(f"| {name} | {' | '.join(figures)} |")
    if not of_ways:
        (folder / _FIGURES).write_text("\n".join([*rows, ""]), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="small_voice", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the run; the bundle is OUT/bundle")
    parser.add_argument(
        "--from", dest="start", type=Path, metavar="BUNDLE", help="train a packed bundle further"
    )
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="to record  [default: %(default)s]")
    parser.add_argument("--steps", type=int, help="of each network, in place of the recipe's own")
    parser.add_argument("--part", choices=PARTS, help="make this part only, of what OUT has")
    parser.add_argument("--listen", type=int, metavar="N", help="print the words wrong in N unseen sentences")
    parser.add_argument(
        "--ways", action="store_true", help="of the ways to speak the bundle, not of its parts"
    )
    parser.add_argument("--whisper", type=Path, metavar="DIR", help="a Whisper model  [default: tiny.en]")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="write the bundle to give away")
    arguments = parser.parse_args()
    if arguments.start:
        begin_from(Workplace(arguments.out), arguments.start)
    if arguments.pack:
        pack(arguments.out, arguments.pack)
    elif arguments.listen:
        hear(arguments.out, arguments.listen, arguments.ways, arguments.whisper)
    elif arguments.part:
        make_part(arguments.out, arguments.part, arguments.steps)
    else:
        make_all(arguments.out, arguments.steps, arguments.sentences)


if __name__ == "__main__":
    main()
