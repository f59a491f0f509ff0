"""The recipe of the small voice on a handful of sentences: what is learned from, and what is written."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

torch = pytest.importorskip("torch")

from small_voice import bundle, flow, language_model, vocoder, words, world  # noqa: E402
from small_voice.__main__ import pack  # noqa: E402
from small_voice.optimise import Losses, Schedule, optimise  # noqa: E402
from small_voice.recipe import Workplace, begin_from, make_part  # noqa: E402
from small_voice.sizes import LANGUAGE_MODEL  # noqa: E402
from small_voice.sounds import CODEBOOK_SIZE, Codebook, audible_sounds  # noqa: E402
from small_voice.speech_tokenizer import SpeechTokenizer, codebook_of, to_onnx  # noqa: E402
from small_voice.teacher import ID_SAMPLES, Teacher, record, recordings  # noqa: E402
from vivavoce.models.checkpoint.weight_files import load_weight_file  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import QWEN_FOLDER  # noqa: E402
from vivavoce.models.cosyvoice.front_end.features import MEL_HOP  # noqa: E402
from vivavoce.models.cosyvoice.front_end.text_tokenizer import TextTokenizer  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_networks  # noqa: E402
from vivavoce.models.cosyvoice.training.lm_rows import LmUtterance, make_lm_row  # noqa: E402

_PACKED = Path(__file__).parents[1] / "data/small_voice"
_SILENCE = [np.zeros((80, 10), np.float16)]


def test_world_repeats_with_its_seed_and_never_says_a_sentence_twice() -> None:
    first = list(islice(world.sentences(3), 500))
    assert first == list(islice(world.sentences(3), 500))
    assert len(set(first)) == 500
    assert first != list(islice(world.sentences(4), 500))
    assert not any("{" in text or "m.." in text for text in first)


def test_world_is_spoken_in_words() -> None:
    spoken = [word.text for word in world.spoken_words("That will be $45.20.")]
    assert spoken == "That will be forty five dollars and twenty cents".split()
    texts = list(islice(world.sentences(3), 300))
    assert not [
        text for text in texts if any(ch.isdigit() for word in world.spoken_words(text) for ch in word.text)
    ]


def test_teacher_knows_what_sounds_when() -> None:
    recording = Teacher().speak("Your order is ready.")
    assert len(recording.samples) % ID_SAMPLES == 0
    assert len(recording.f0) == len(recording.samples) // MEL_HOP
    level = np.abs(recording.waveform).reshape(-1, MEL_HOP).max(1)
    audible, voiced = np.flatnonzero(level > 0.01), np.flatnonzero(recording.f0)
    assert abs(audible[0] - voiced[0]) <= 1  # it begins and ends with a voiced sound
    assert abs(audible[-1] - voiced[-1]) <= 3
    assert recording.words[-1] == len(recording.text.split()) - 1
    assert (np.diff(recording.words) >= 0).all()


def test_recordings_are_made_once(tmp_path: Path) -> None:
    (file,) = record(tmp_path, 3, seed=5)
    made = file.stat().st_mtime_ns
    assert record(tmp_path, 3, seed=5) == [file]
    assert file.stat().st_mtime_ns == made
    texts = [one.text for one in recordings(file)]
    assert len(texts) == 3
    spoken = Teacher().speak(next(world.sentences(5)))
    kept = next(recordings(file))
    assert (kept.samples == spoken.samples).all()
    assert (kept.words == spoken.words).all()


def test_a_stress_sounds_as_its_vowel() -> None:
    assert audible_sounds(np.array([50, 16, 156, 24], np.uint8)).tolist() == [50, 16, 24, 24]


def test_an_id_names_its_sounds_and_its_pitch() -> None:
    spoken, unseen = map(Teacher().speak, ("Your order is ready.", "Thank you."))
    codebook = Codebook.of([spoken])
    assert codebook.triples.shape == (CODEBOOK_SIZE, 3)
    named = codebook.triples[codebook.ids(spoken)]
    assert (named[:, :2].ravel() == audible_sounds(spoken.phonemes)).all()
    assert ((named[:, 2] > 0) == (spoken.f0.reshape(-1, 2) > 0).any(1)).all()
    voiced = named[:, 2] > 0
    pitch = spoken.f0.reshape(-1, 2).max(1)[voiced]
    assert np.corrcoef(named[voiced, 2], np.log(pitch))[0, 1] > 0.8
    # What has no id of its own gets one that is like it.
    others = codebook.triples[codebook.ids(unseen)]
    sounds = audible_sounds(unseen.phonemes).reshape(-1, 2)
    is_alike = (others[:, :2] == sounds).any(1)
    assert is_alike[np.isin(sounds, codebook.triples[:, :2]).all(1)].mean() > 0.9


def _tokenizer() -> SpeechTokenizer:
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    triples = np.column_stack([draw.integers(high, size=CODEBOOK_SIZE) for high in (192, 192, 6)])
    return SpeechTokenizer(Codebook(triples))


def test_graph_of_the_speech_tokenizer_gives_the_ids_of_the_network() -> None:
    network = _tokenizer()
    whisper = 30 * torch.randn(1, 128, 4 * 23)
    graph = to_onnx(network)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    feed = {"feats": whisper.numpy(), "feats_length": np.array([whisper.shape[2]], np.int32)}
    (ids,) = session.run(None, feed)
    assert ids.shape == (1, 23)
    assert ids.dtype == np.int32
    assert ids.tolist() == network.ids(whisper).tolist()
    assert len(set(ids[0].tolist())) > 5
    assert (codebook_of(graph).triples == network.triples.numpy()).all()


def test_most_words_are_one_token(tmp_path: Path) -> None:
    texts = [
        " ".join(w.text + w.punctuation for w in world.spoken_words(t))
        for t in islice(world.sentences(1), 400)
    ]
    words.write_tokenizer(texts, tmp_path)
    tokenizer = TextTokenizer.load(tmp_path, LANGUAGE_MODEL.version)
    assert tokenizer.vocab_size == LANGUAGE_MODEL.text_vocab_size
    for text in texts[:50]:
        ids, of_words = words.text_ids(tokenizer, text)
        assert ids == tokenizer.encode_plain(text)
        assert sorted(set(of_words)) == list(range(len(text.split())))
        assert len(ids) < 2 * len(text.split())


@pytest.mark.parametrize("interleaved", [False, True])
def test_guide_points_at_the_word_that_is_spoken(interleaved: bool) -> None:
    # Six words of one token, each spoken for six ids; the fifth begins in the block after it.
    sentence = language_model.Sentence(
        tuple(range(6)), tuple(range(6)), tuple(range(36)), tuple(np.arange(36) // 6)
    )
    row = make_lm_row(
        LANGUAGE_MODEL, LmUtterance(sentence.text_ids, sentence.speech_ids), interleaved=interleaved
    )
    columns = len(row.inputs)
    wanted = language_model.wanted_places([sentence], [row], columns)[0]
    for column, target in enumerate(row.targets):
        places = np.flatnonzero(wanted[column])
        if 0 <= target < 36:
            assert [row.inputs[place].id for place in places] == [target // 6]
        else:
            assert not len(places)


def test_the_checkpoints_of_a_run_are_packed_as_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Workplace(tmp_path / "run")
    words.write_tokenizer(islice(world.sentences(1), 100), place.bundle / QWEN_FOLDER)
    bundle.write_settings(place.bundle)
    bundle.write_speaker(place.bundle)
    bundle.write_speech_tokenizer(place.bundle, _tokenizer())
    networks = {
        "lm": language_model.new_network(0),
        "flow": flow.new_network(0, _SILENCE),
        "vocoder": vocoder.new_network(0),
    }
    for part, network in networks.items():
        state = {"step": 40, "steps": 18_000, "average": dict(network.named_parameters())}
        torch.save(state, place.checkpoint(part))
    (place.folder / "figures.md").write_text("Words wrong: all.", "utf-8")
    packed = tmp_path / "packed"
    pack(place.folder, packed)
    load_networks(open_bundle(packed))
    assert list(open_bundle(packed).speakers()) == [bundle.SPEAKER]
    assert sum(file.stat().st_size for file in packed.rglob("*") if file.is_file()) < 15e6
    card = (packed / "README.md").read_text("utf-8")
    assert "| lm | random weights | 40 of 18,000 |" in card and "Words wrong: all." in card
    assert "hibari-tts" in (packed / "NOTICE").read_text("utf-8") and (packed / "LICENSE").exists()
    with pytest.raises(ValueError, match="exists already"):
        pack(place.folder, packed)
    monkeypatch.setattr(bundle, "MAX_PACKED_BYTES", 5_000_000)
    with pytest.raises(ValueError, match="at most 5 are allowed"):
        pack(place.folder, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_the_command_makes_a_bundle_from_nothing(tmp_path: Path) -> None:
    options = [str(tmp_path), "--sentences", "100", "--steps", "1"]
    subprocess.run([sys.executable, "-m", "small_voice", *options], check=True)
    load_networks(open_bundle(tmp_path / "bundle"))


def test_a_run_goes_on_from_a_packed_bundle(tmp_path: Path) -> None:
    """Its networks begin with the packed weights; the one that is trained is packed with its new ones."""
    place = Workplace(tmp_path / "run")
    begin_from(place, _PACKED)
    record(place.recordings, 3, seed=5)
    make_part(place.folder, "ids")
    make_part(place.folder, "flow", steps=2)
    saved = torch.load(place.checkpoint("flow"), weights_only=True)
    begun, packed = load_weight_file(_PACKED / "flow.safetensors"), tmp_path / "packed"
    for name, weight in saved["network"].items():
        torch.testing.assert_close(weight, begun[name].float(), atol=0.02, rtol=0)  # two steps away
    pack(place.folder, packed)
    assert "| flow | an earlier bundle | 2 of 2 |" in (packed / "README.md").read_text("utf-8")
    for name in ("llm", "hift", "flow"):
        file = f"{name}.safetensors"
        is_same = (packed / file).read_bytes() == (_PACKED / file).read_bytes()
        assert is_same == (name != "flow"), name


def test_a_bundle_that_is_not_whole_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "cosyvoice2.yaml").write_text("", "utf-8")
    with pytest.raises(ValueError):
        bundle.pack(tmp_path / "bundle", tmp_path / "packed", [], "")
    assert not (tmp_path / "packed").exists()


@pytest.mark.slow
def test_each_part_learns_from_recordings(tmp_path: Path) -> None:
    """A few steps on six recordings: the losses fall, and every parameter has a gradient."""
    from small_voice import corpus
    from small_voice.speech_tokenizer import SpeechTokenizerTask

    files = record(tmp_path, 6, seed=5)
    utterances = corpus.load(files)
    mels = [one.mel for one in utterances]
    codebook = Codebook.of(one.recording for one in utterances)
    ids = [codebook.ids(one.recording) for one in utterances]
    tokenizer, voice = SpeechTokenizer(codebook), vocoder.new_network(0)
    lm, mel_flow = language_model.new_network(0), flow.new_network(0, mels)
    sentences = [
        language_model.Sentence(
            (1, 2, 3), (0, 1, 2), tuple(row.tolist()), tuple(np.arange(len(row)) * 3 // len(row))
        )
        for row in ids
    ]
    tasks = [
        SpeechTokenizerTask(tokenizer, corpus.load_whisper(files), ids),
        vocoder.VocoderTask(voice, mels, [one.recording for one in utterances]),
        flow.FlowTask(mel_flow, ids, mels, np.ones(192, np.float32)),
        language_model.LanguageModelTask(lm, sentences),
    ]
    for task in tasks:
        before = _mean_loss(task)
        optimise(task, Schedule(steps=6, rate=1e-3, warm_up=1), tmp_path / "part.pt", 1)
        (tmp_path / "part.pt").unlink()
        assert _mean_loss(task) < before
        without = [name for name, parameter in task.network.named_parameters() if parameter.grad is None]
        assert not without, without


def _mean_loss(task: "vocoder.VocoderTask") -> float:
    with torch.no_grad():
        losses = [task.losses(np.random.default_rng(seed), 0.0) for seed in range(2)]
    return sum(loss.item() for part in losses for loss in part.values())


class _Squares:
    """A task of two kinds of random numbers that is ended before a step."""

    def __init__(self, ends_before: int | None) -> None:
        torch.manual_seed(0)
        self.network = torch.nn.Linear(4, 4)
        self._steps_left = ends_before

    def losses(self, draw: np.random.Generator, progress: float) -> Losses:
        if self._steps_left is not None:
            if not self._steps_left:
                raise KeyboardInterrupt
            self._steps_left -= 1
        x = torch.from_numpy(draw.standard_normal((8, 4))).float() + torch.rand(8, 4)
        return {"square": self.network(x).square().mean()}


def test_a_run_that_was_ended_takes_the_same_steps(tmp_path: Path) -> None:
    schedule = Schedule(steps=20, rate=1e-2, checkpoint_every_s=0)
    wanted = optimise(_Squares(None), schedule, tmp_path / "once.pt", 3)["weight"]
    with pytest.raises(KeyboardInterrupt):
        optimise(_Squares(7), schedule, tmp_path / "ended.pt", 3)
    again = _Squares(None)
    assert torch.equal(optimise(again, schedule, tmp_path / "ended.pt", 3)["weight"], wanted)
    assert not torch.equal(again.network.weight, wanted)  # the average is not the last step
