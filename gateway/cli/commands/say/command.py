"""The options of ``vivavoce say``."""

import asyncio
from pathlib import Path

import click

from ...options import BUNDLE_HELP, DEVICE, PRECISIONS, executor_option


@click.command(epilog="Example: vivavoce say 'Your table is ready.' -o ready.mp3")
@click.argument("text", required=False)
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    help="A file: .wav .mp3 .flac .opus .ogg .aac .pcm; - for raw s16le on a pipe.  [default: play it]",
)
@click.option(
    "--subtitles",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write subtitles: .srt, .vtt or .json.",
)
@click.option("--bundle", default="default", metavar="DIR", help=BUNDLE_HELP)
@click.option(
    "--precision", type=PRECISIONS, default="auto", show_default=True, help="Of CosyVoice's weights."
)
@DEVICE
@executor_option()
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    envvar="VIVAVOCE_VOICES_STORE",
    metavar="DIR",
    help="Enrolled voices; also VIVAVOCE_VOICES_STORE.",
)
@click.option("--voice", metavar="ID", help="Voice.  [default: the first one]")
@click.option("--speed", type=click.FloatRange(0.5, 2.0), default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--sample-rate", type=click.Choice(["24000", "8000"]), default="24000", show_default=True)
@click.option("--ssml", "is_ssml", is_flag=True, help="The text is SSML even without <speak at its start.")
def say(
    text: str | None,
    out: str | None,
    subtitles: Path | None,
    bundle: str,
    precision: str,
    device: str | None,
    executor: str | None,
    store: Path | None,
    voice: str | None,
    speed: float,
    seed: int,
    sample_rate: str,
    is_ssml: bool,
) -> None:
    """Speak TEXT, or standard input as it arrives, to the loudspeaker or a file."""
    from . import speaking

    options = speaking.SayOptions(
        out=out,
        subtitles=subtitles,
        voice=voice,
        speed=speed,
        seed=seed,
        sample_rate=int(sample_rate),
        is_ssml=is_ssml,
        bundle=bundle,
        voices=store,
        precision=precision,
        device=device or "auto",
        executor=executor or "auto",
    )
    asyncio.run(speaking.say(text, options))
