"""Speaks with an exported bundle in an interpreter in which torch cannot be imported.

python speech_without_torch.py BUNDLE STORE PRECISION TEXT SPEECH.pcm

Prints the speech ids of the language model as JSON, and the modules of torch that were imported.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

sys.modules["torch"] = None  # type: ignore[assignment]  # so its import fails, as if it were not installed

from shared.voices.tiny_cosyvoice import BRIEF, pcm, run, speak  # noqa: E402
from vivavoce.models.cosyvoice.lm.decode_turn import DecodeTurn  # noqa: E402
from vivavoce.models.devices.execution import Precision  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.cosyvoice.lm_runner import LmRunner  # noqa: E402
from vivavoce.tts_engine.cosyvoice.policy import policy_for  # noqa: E402
from vivavoce.tts_engine.engine import Engine  # noqa: E402


def main(bundle: str, store: str, precision: str, text: str, target: str) -> None:
    ids: list[int] = []
    choose = LmRunner.choose

    def note(runner: LmRunner, turns: Mapping[int, DecodeTurn]) -> dict[int, int]:
        chosen = choose(runner, turns)
        ids.extend(chosen.values())
        return chosen

    LmRunner.choose = note  # type: ignore[assignment, method-assign]
    policy = replace(BRIEF, executor=policy_for(precision, "auto").executor, precision=Precision(precision))

    speech: list[bytes] = []

    async def test() -> None:
        backend = CosyVoiceBackend.load(Path(bundle), policy, Path(store))
        async with await Engine.open(backend=backend) as engine:
            ids.clear()
            speech.append(pcm(await speak(engine, [text], voice="anna", seed=3)))

    run(test())
    Path(target).write_bytes(b"".join(speech))
    print(json.dumps({"ids": ids, "torch": [name for name in sys.modules if name.startswith("torch.")]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
