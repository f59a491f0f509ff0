"""Callers for benches of speech detection: voices, their levels, and the line that they speak over.

A caller begins to speak, whatever the detector says, with the first 20 ms whose power is within 20 dB of the
active speech level (ITU-T P.56). What comes before is breath and noise beside the speech that follows.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.audio.speech_level import active_speech_level
from shared.voices.installed_voices import write_joe_folder, write_kokoro_folder
from vivavoce.adapters.audio.formats.g711 import alaw_decode, alaw_encode, ulaw_decode, ulaw_encode
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.tts_engine.engine import Engine

RATE: Final = 8_000
PACKET: Final = 160  # samples
LINE_NOISE_DBFS: Final = -62.0
NOTICED_S: Final = 0.15
_ONSET_DB: Final = 20.0  # below the active level
_ONSET_SAMPLES: Final = 160
KOKORO_VOICES: Final = ("jm_kumo", "jf_alpha", "jf_gongitsune", "jf_nezumi", "jf_tebukuro")
OWN_SENTENCES: Final = (
    "Good morning, this is the office of the city, how can I help you today?",
    "Your appointment is on Tuesday at half past three.",
    "Please tell me the number of your contract.",
    "I am sorry, I did not understand that.",
    "We have three rooms left for that night, the cheapest is eighty euros.",
    "The parcel was delivered yesterday to your neighbour.",
    "Would you like to speak with a colleague of mine?",
    "Please wait a moment, I am looking that up for you.",
    "Thank you for calling, and have a nice day.",
    "The next train to Hamburg leaves at ten past nine from platform four.",
)
# Beginnings with all kinds of sounds: stops, fricatives, nasals, glides, vowels.
CALLER_SENTENCES: Final = (
    "Wait a moment, please.",
    "Stop, that is not what I asked for.",
    "No, the other one.",
    "Yes, that is right.",
    "Excuse me, could I talk to somebody about my bill?",
    "Hello, can you hear me?",
    "Sorry, I did not get that.",
    "I want to speak to a person.",
    "Actually, it was on Friday.",
    "Four seven one two nine.",
    "She said it would be here by Monday.",
    "Thank you, that is all I need.",
    "Let me think about that.",
    "Zero three zero, then double five.",
    "Maybe next week is better.",
    "Uh, I do not know.",
)
# A second set, for what was found with the first one.
SECOND_OWN_SENTENCES: Final = (
    "Welcome to the library, which book may I find for you?",
    "Your order has left our warehouse this morning.",
    "For questions about your invoice, please say invoice.",
    "The doctor is on holiday until the fifteenth of August.",
    "I have found two flights, one at noon and one in the evening.",
    "Shall I read the list again?",
    "Your table for four is booked for eight o'clock.",
    "Could you spell your last name for me?",
    "All of our technicians are busy, it may take ten minutes.",
    "Okay, I have changed your password, anything else?",
)
SECOND_CALLER_SENTENCES: Final = (
    "Can you repeat the address?",
    "Hold on, I need a pen.",
    "That will not work for me.",
    "My name is Peter Novak.",
    "I would rather come in the afternoon.",
    "Operator.",
    "Just a second, somebody is at the door.",
    "Could you speak more slowly?",
    "Eight nine five, not eight four five.",
    "You already told me that.",
    "What does it cost?",
    "Right, but I have paid it already.",
    "Forget it, I will call again.",
    "Good, and how long does it take?",
    "Every time I call, it is the same.",
    "Hang on, please.",
)
# A third set, which is for a last check and not to choose settings by.
THIRD_OWN_SENTENCES: Final = (
    "You have reached the garage, what is wrong with your car?",
    "The balance of your account is two hundred and twelve euros.",
    "Press one if you would like to hear this again.",
    "Unfortunately the shop is closed on Sundays.",
    "I have noted that the heating in the kitchen does not work.",
    "Which of the two dates suits you better?",
    "Your prescription is ready, you can collect it from nine o'clock.",
    "May I have your date of birth, please?",
    "We will send you a message as soon as the driver is near you.",
    "That was my last question, goodbye and take care.",
)
THIRD_CALLER_SENTENCES: Final = (
    "Please say that again.",
    "But I have already sent the form.",
    "Do you have anything earlier?",
    "Go back to the first one.",
    "Until when are you open?",
    "There must be a mistake.",
    "Really, is that all?",
    "Verify the number first.",
    "Keep it short, I am driving.",
    "Under no circumstances.",
    "Jump to the end.",
    "Nobody called me back.",
    "Is there a cheaper one?",
    "Twenty past six would be fine.",
    "Once more, but slowly.",
    "Hm, what was the question?",
)
# By name: what the call says, and what callers say.
SENTENCE_SETS: Final = {
    "first": (OWN_SENTENCES, CALLER_SENTENCES),
    "second": (SECOND_OWN_SENTENCES, SECOND_CALLER_SENTENCES),
    "third": (THIRD_OWN_SENTENCES, THIRD_CALLER_SENTENCES),
}

Samples = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CallerClip:
    """A sentence of a caller."""

    voice: str
    samples: Samples  # 8 kHz, -1 to 1
    onset: int  # the sample at which it becomes audible

    def at_level(self, dbfs: float) -> Samples:
        """The samples with that active speech level."""
        level = active_speech_level(self.samples.astype(np.float32), RATE)
        return self.samples * 10 ** ((dbfs - level) / 20)


def callers(sentences: Sequence[str] = CALLER_SENTENCES) -> list[CallerClip]:
    """Piper's joe and the voices of Kokoro, sentence by sentence. Raises VoiceNotInstalled."""
    clips = []
    with tempfile.TemporaryDirectory() as piper, tempfile.TemporaryDirectory() as kokoro:
        joe, five = write_joe_folder(Path(piper)), write_kokoro_folder(Path(kokoro))
        for voice in ("joe", *KOKORO_VOICES):
            bundle, name = (joe, None) if voice == "joe" else (five, voice)
            for samples in asyncio.run(speak(str(bundle), sentences, name)):
                clips.append(CallerClip(voice, samples, onset(samples)))
    order = np.random.default_rng(1).permutation(len(clips))  # voices and sentences mixed, alike in each run
    return [clips[place] for place in order]


async def speak(bundle: str, texts: Sequence[str], voice: str | None = None) -> list[Samples]:
    """Speak each text; 8 kHz, with all that a telephone lets through."""
    spoken = []
    async with await Engine.open(bundle) as engine:
        for seed, text in enumerate(texts):
            async with engine.stream(seed=seed, voice=voice) as stream:
                stream.push_text(text)
                stream.end_input()
                pcm = b"".join([chunk.pcm async for chunk in stream])
            down = Downsampler()
            spoken.append(to_samples(down.push(pcm) + down.drain()))
    return spoken


def onset(samples: Samples) -> int:
    """The first sample of the first 20 ms within 20 dB of the active speech level."""
    level = active_speech_level(samples.astype(np.float32), RATE)
    power = np.convolve(samples**2, np.full(_ONSET_SAMPLES, 1 / _ONSET_SAMPLES), "valid")
    return int(np.argmax(power >= 10 ** ((level - _ONSET_DB) / 10)))


def noise(samples: int, dbfs: float, numbers: np.random.Generator) -> Samples:
    """White noise."""
    return numbers.normal(size=samples) * 10 ** (dbfs / 20)


def ulaw_line(samples: Samples) -> bytes:
    """What arrives over a line with u-law, s16le."""
    return ulaw_decode(ulaw_encode(to_pcm(samples)))


def alaw_line(samples: Samples) -> bytes:
    """What arrives over a line with A-law, s16le."""
    return alaw_decode(alaw_encode(to_pcm(samples)))


def to_samples(pcm: bytes) -> Samples:
    """Return s16le as samples from -1 to 1."""
    return np.frombuffer(pcm, "<i2") / 32_768


def to_pcm(samples: Samples) -> bytes:
    """Return samples from -1 to 1 as s16le."""
    return np.clip(np.rint(32_768 * samples), -32_768, 32_767).astype("<i2").tobytes()
