"""Golden cases e: the language models of both versions, prefill, cached steps and whole greedy utterances."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from vivavoce.models.bistream import (  # noqa: E402
    END_OF_PROMPT,
    Ask,
    CompatOneShot,
    Kind,
    Prompt,
    SpeechIds,
    Unit,
)
from vivavoce.models.geometry import Version  # noqa: E402
from vivavoce.models.golden_weights import read_geometry, read_rule, weights  # noqa: E402
from vivavoce.models.manifest import llm_shapes  # noqa: E402
from vivavoce.models.speech_lm import SpeechLm, embed, last_valid  # noqa: E402

GOLDEN = Path(__file__).parent / "data"
CASES = {Version.V2: "e_llm", Version.V3: "e_llm3"}
Case = dict[str, NDArray[np.int64]]
Choose = Callable[[NDArray[np.float32], Ask], int]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    # Networks as small as these lose more by waking a second thread than it does.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def load(version: Version) -> SpeechLm:
    config = read_geometry(GOLDEN, version).lm
    drawn = weights(llm_shapes(config), read_rule(GOLDEN))
    tensors = {key: torch.from_numpy(array) for key, array in drawn.items()}
    network = SpeechLm.load(config, tensors)
    assert tensors == {}
    return network


@pytest.fixture(scope="module", params=list(Version))
def lm(request: pytest.FixtureRequest) -> SpeechLm:
    return load(request.param)


@pytest.fixture(scope="module")
def case(lm: SpeechLm) -> Case:
    with np.load(GOLDEN / f"{CASES[lm.config.version]}.npz") as stored:
        return dict(stored)


def test_prefill_and_cached_steps(lm: SpeechLm, case: Case) -> None:
    text = np.concatenate([case["prompt_text"][0], case["text"][0]]).tolist()
    units = [
        Unit(Kind.START),
        *(Unit(Kind.TEXT, id) for id in text),
        Unit(Kind.TURN),
        *(Unit(Kind.SPEECH, id) for id in case["prompt_speech"][0].tolist()),
    ]
    x, valid = embed(lm, [units])
    np.testing.assert_array_equal(x, case["lm_input"])
    hidden, state = lm.step(x, lm.init_state(1, 64), valid)
    np.testing.assert_allclose(hidden, case["prefill_hidden"], atol=1e-4)
    np.testing.assert_allclose(lm.logits(hidden), case["prefill_logits"], atol=1e-4)
    steps = [lm.logits(last_valid(hidden, valid))]
    for id in case["step_tokens"].tolist():
        x, valid = embed(lm, [[Unit(Kind.SPEECH, id)]])
        hidden, state = lm.step(x, state, valid)
        steps.append(lm.logits(hidden[:, -1]))
    logits = torch.cat(steps)
    np.testing.assert_allclose(logits, case["logits"], atol=1e-4)
    np.testing.assert_allclose(logits.log_softmax(-1), case["logp"], atol=1e-4)


def greedy(logits: NDArray[np.float32], ask: Ask) -> int:
    logits[list(ask.forbidden)] = -np.inf
    return int(logits.argmax())


def speak(lm: SpeechLm, prompt: Prompt, text: list[int], choose: Choose = greedy) -> list[int]:
    generation = CompatOneShot(SpeechIds(lm.config.version, lm.config.speech_codes), prompt)
    generation.push_text(text)
    generation.end_text()
    state = lm.init_state(1, 320)
    while (ask := generation.ask()) is not None:
        # The reduced vocabulary ends before the id that version 3 looks for; its last row stands for it.
        inputs = [Unit(unit.kind, min(unit.id, lm.config.text_rows - 1)) for unit in ask.inputs]
        x, valid = embed(lm, [inputs])
        hidden, state = lm.step(x, state, valid)
        generation.answer(choose(lm.logits(last_valid(hidden, valid))[0].numpy(), ask))
    return generation.spoken


def prompt_of(lm: SpeechLm, case: Case) -> Prompt:
    text = case["prompt_text"][0].tolist()
    if lm.config.version is Version.V3:
        text[3] = END_OF_PROMPT
    return Prompt(tuple(text), tuple(case["prompt_speech"][0].tolist()))


def test_greedy_speech_is_upstreams_id_for_id(lm: SpeechLm, case: Case) -> None:
    prompt, text = prompt_of(lm, case), case["text"][0].tolist()
    assert speak(lm, prompt, text) == case["greedy_zs"].tolist()
    assert speak(lm, Prompt(prompt.text_ids), text) == case["greedy_noprompt_speech"].tolist()
    if lm.config.version is Version.V2:
        assert speak(lm, Prompt(), text) == case["greedy_sft"].tolist()


def test_sixty_sounds_without_an_end(lm: SpeechLm, case: Case) -> None:
    ids = SpeechIds(lm.config.version, lm.config.speech_codes)
    said = 0

    def sounds_only(logits: NDArray[np.float32], ask: Ask) -> int:
        nonlocal said
        said += 1
        return int(logits[: ids.codes].argmax()) if said <= 60 else ids.end

    spoken = speak(lm, prompt_of(lm, case), case["text"][0].tolist(), sounds_only)
    assert spoken == case["speech_argmax60_zs"].tolist()
