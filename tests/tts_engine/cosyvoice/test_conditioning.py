"""How a recording is cut for the flow: whole blocks, then the ids that the first chunk renders again."""

import numpy as np
import pytest

from vivavoce.models.cosyvoice.config import BLOCK_IDS, FRAMES_PER_SPEECH_ID, MEL_BANDS, CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices
from vivavoce.tts_engine.cosyvoice.conditioning import FlowPrompt
from vivavoce.tts_engine.segmenter import SpokenWord
from vivavoce.tts_engine.voice_kit.spoken_words import estimate_seconds

MAX_IDS = 100


def flow_prompt(length: int) -> FlowPrompt:
    """A recording in which ids, and the mel of each, count up."""
    mel = np.repeat(np.arange(length, dtype=np.float32), FRAMES_PER_SPEECH_ID)
    ids = np.arange(length, dtype=np.int32)
    return FlowPrompt("voice", np.zeros(192, np.float32), ids, np.tile(mel, (MEL_BANDS, 1)))


@pytest.mark.parametrize("tail", [3, 11, 20])
@pytest.mark.parametrize("length", [20, 45, 77, 100, 300])
def test_the_end_of_a_recording_is_whole_blocks_and_the_tail(length: int, tail: int) -> None:
    cut = flow_prompt(length).truncated_to_last(MAX_IDS, tail)
    assert len(cut.ids) % BLOCK_IDS == tail
    assert min(length, MAX_IDS) - BLOCK_IDS < len(cut.ids) <= min(length, MAX_IDS)
    assert cut.ids[-1] == cut.mel[0, -1] == length - 1
    assert cut.prompt_tail_ids == tuple(range(length - tail, length))
    assert cut.prompt_tail_mel[0].tolist() == np.repeat(cut.prompt_tail_ids, FRAMES_PER_SPEECH_ID).tolist()


@pytest.mark.parametrize("length", [0, 10])
def test_without_a_recording_a_lead_in_of_the_same_length_takes_its_place(length: int) -> None:
    cut = flow_prompt(length).truncated_to_last(MAX_IDS, 11)
    assert not len(cut.ids) and not cut.mel.shape[1]
    assert cut.prompt_tail_length == 11
    assert cut.prompt_tail_mel.shape == (MEL_BANDS, 22) and not cut.prompt_tail_mel.any()


def test_the_key_tells_how_much_is_kept() -> None:
    long, none = flow_prompt(100), flow_prompt(0)
    cuts = [prompt.truncated_to_last(MAX_IDS, tail) for prompt in (long, none) for tail in (3, 11)]
    assert len({cut.key for cut in cuts}) == len(cuts)


def test_a_voice_is_expected_to_keep_the_pace_of_its_recording() -> None:
    prompt = VoicePrompt(
        CosyVoiceVersion.V2,
        "a tone that wobbles",
        np.zeros(50, np.int32),
        np.zeros((80, 100), np.float32),
        np.zeros(192, np.float32),
    )
    voices = BundleVoices({"anna": prompt, "otto": np.zeros(192, np.float32)}, pytest.fail, ("en",))
    usual_s = estimate_seconds(SpokenWord(word, "", 0, 0) for word in ("a", "tone", "that", "wobbles"))
    assert voices.speaker_profile("anna").pace == pytest.approx(2.0 / usual_s)
    assert voices.speaker_profile("otto").pace == 1.0
