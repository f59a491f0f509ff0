"""The cases of a golden folder before the flow: features, language model, sampling, interleave, text.

Configuration, salt and multipliers come from the folder's config.json. Only comparisons: no printing, no
verdict. Where a case is a trace rather than numbers, the error is how many of its rows differ, and none may.

Source: the cases e_llm, e_llm3, f_ras, g_features, h_bistream, i_schedule, k_frontend, l_tokenizer_proxy of
the golden set's README, from FunAudioLLM/CosyVoice@ace7c47.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.reference import upstream_text
from golden.reference.flow import Comparison, compare, read_arrays
from golden.reference.rule_weights import read_rule, read_stated_config, rule_weights
from golden.reference.upstream_text import UpstreamTextRules
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import llm_shapes
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.flow.hop_schedule import HopSchedule, SpeechIdChunk
from vivavoce.models.cosyvoice.front_end import features
from vivavoce.models.cosyvoice.front_end.text_tokenizer import TextTokenizer, read_tiktoken_ranks
from vivavoce.models.cosyvoice.lm.generation import (
    CompatBistreamGeneration,
    CompatOneShotGeneration,
    Generation,
    LmInput,
    LmInputKind,
    LmPrompt,
    SamplingRequest,
    SpecialIds,
    UnexpectedIdError,
)
from vivavoce.models.cosyvoice.lm.sampling import SamplingContext, sample_ids
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm, embed_inputs, last_valid_hidden

KNOWN_RANKS = Path(__file__).with_name("qwen_ranks_of_the_golden_texts.tiktoken")

_NETWORK_TOLERANCE = 1e-4
_FEATURE_TOLERANCE = 1e-4
_RESAMPLED_TOLERANCE = 1e-5
_FILTER_BANK_TOLERANCE = 5e-4  # upstream's float32 loses three digits in nearly empty bands
_FIRST_SPECIAL_ID = 151_643
_FIRST_TEXT_ID = 2000  # of what h_bistream pushes
_MIN_SOUNDS = 60  # draws of f_ras in which the end is forbidden

Row = Mapping[str, Any]
Choose = Callable[[NDArray[np.float32], SamplingRequest], int]


def cases() -> dict[str, Callable[[Path], Iterator[Comparison]]]:
    """What compares each case of a folder, by the case's name."""
    return {
        "e_llm": partial(language_model, case="e_llm", version=CosyVoiceVersion.V2),
        "e_llm3": partial(language_model, case="e_llm3", version=CosyVoiceVersion.V3),
        "f_ras": sampling,
        "g_features": speech_features,
        "h_bistream": interleave,
        "i_schedule": schedule,
        "k_frontend": text_rules,
        "l_tokenizer_proxy": text_ids,
    }


def speech_features(folder: Path) -> Iterator[Comparison]:
    """Case g: both mels, Whisper's and Kaldi's features, the resampler."""
    arrays = read_arrays(folder, "g_features")
    waves = {rate: arrays[f"wav{rate}"][0].numpy() for rate in (16, 24, 44)}
    bank = features.kaldi_filter_bank(waves[16])
    ours = {
        "mel24_v2": (features.mel_spectrogram(waves[24], 8000)[None], _FEATURE_TOLERANCE),
        "mel24_v3": (features.mel_spectrogram(waves[24], None)[None], _FEATURE_TOLERANCE),
        "whisper128": (features.whisper_log_mel(waves[16])[None], _FEATURE_TOLERANCE),
        "fbank80": (bank, _FILTER_BANK_TOLERANCE),
        "fbank80_cmn": (bank - bank.mean(axis=0), _FILTER_BANK_TOLERANCE),
    }
    for source, target in ((24, 16), (16, 24), (44, 24), (44, 16)):
        resampled = features.resample(waves[source], _sample_rate(source), _sample_rate(target))
        ours[f"rs_{source}_{target}"] = (resampled[None], _RESAMPLED_TOLERANCE)
    for name, (array, tolerance) in ours.items():
        yield compare("g_features", name, torch.from_numpy(array), arrays[name], tolerance)


def language_model(folder: Path, case: str, version: CosyVoiceVersion) -> Iterator[Comparison]:
    """Cases e: inputs, prefill, cached steps, and whole utterances by the likeliest id."""
    arrays = read_arrays(folder, case)
    lm = load_language_model(folder, version)
    found = _teacher_forced_outputs(lm, arrays)
    for name in ("lm_input", "prefill_hidden", "prefill_logits", "logits", "logp"):
        yield compare(case, name, found[name], arrays[name], _NETWORK_TOLERANCE)
    for name, spoken in _utterances(lm, arrays).items():
        if name in arrays:
            yield _compare_rows(case, name, [spoken], [arrays[name].tolist()])


def load_language_model(folder: Path, version: CosyVoiceVersion) -> SpeechLm:
    """The reduced language model of a golden folder."""
    config = read_stated_config(folder, version).lm
    drawn = rule_weights(llm_shapes(config), read_rule(folder))
    return SpeechLm.load(config, {key: torch.from_numpy(array) for key, array in drawn.items()})


def sampling(folder: Path) -> Iterator[Comparison]:
    """Case f: draws with replayed uniform numbers."""
    arrays = read_arrays(folder, "f_ras")
    end = int(json.loads((folder / "config.json").read_text("utf-8"))["config"]["speech_token_size"])
    source = _Replayed(arrays["uniforms"].tolist())
    decoded: list[int] = []
    draws = []
    for index, logits in enumerate(arrays["logits"].numpy()):
        forbidden = (end,) if index < _MIN_SOUNDS else ()
        draws += sample_ids(logits[None], [SamplingContext(decoded, source, forbidden)])
        decoded.append(draws[-1].id)
    yield _compare_rows("f_ras", "ids", decoded, arrays["ids"].tolist())
    yield _compare_rows("f_ras", "fallback", [drawn.redrawn for drawn in draws], arrays["fallback"].tolist())
    candidates = [drawn.candidates for drawn in draws]
    yield _compare_rows("f_ras", "n_candidates", candidates, arrays["n_candidates"].tolist())
    yield _compare_rows("f_ras", "n_uniforms_used", [source.used], [int(arrays["n_uniforms_used"])])


def interleave(folder: Path) -> Iterator[Comparison]:
    """Case h: what is fed and yielded for every way of pushing text."""
    rows = _read_rows(folder, "h_bistream")
    codes = int(json.loads((folder / "config.json").read_text("utf-8"))["config"]["speech_token_size"])
    ours = [_Scripted(row, codes).run() for row in rows]
    theirs = [(row["forward_calls"], row["yielded"], row["error"]) for row in rows]
    yield _compare_rows("h_bistream", "forward_calls, yielded, error", ours, theirs)


def schedule(folder: Path) -> Iterator[Comparison]:
    """Case i: which ids each call of flow and vocoder has, and how many samples come of it."""
    stated = _read_rows(folder, "i_schedule")
    for name in ("fresh_model", "same_model_three_requests"):
        for version in CosyVoiceVersion:
            rows = stated[name][f"v{version.value}"]
            ours = [_streamed(row, version) for row in rows]
            yield _compare_rows("i_schedule", f"{name} v{version.value}", ours, rows)
    offline = [
        _offline(row, version) for row, version in zip(stated["offline"], CosyVoiceVersion, strict=True)
    ]
    yield _compare_rows("i_schedule", "offline", offline, stated["offline"])


def text_rules(folder: Path) -> Iterator[Comparison]:
    """Case k: normalisation and cutting, every string of it."""
    stated = _read_rows(folder, "k_frontend")

    def trace(part: str, answer: Callable[[Any], Any], expected: Callable[[Any], Any]) -> Comparison:
        rows = stated[part]
        return _compare_rows(
            "k_frontend", part, [answer(row) for row in rows], [expected(row) for row in rows]
        )

    yield trace("en", _english, lambda row: (row["spelled"], row["split"]))
    yield trace("zh", _chinese, lambda row: tuple(row[name] for name in _CHINESE_STEPS))
    yield trace("text_normalize_no_wetext", _prepared, lambda row: (row["split"], row["nosplit"]))
    yield trace("only_punct", lambda row: upstream_text.is_only_punctuation(row[0]), lambda row: row[1])
    yield trace(
        "contains_chinese",
        lambda row: upstream_text.rules_for(row[0]) is UpstreamTextRules.CHINESE,
        lambda row: row[1],
    )


def text_ids(folder: Path) -> Iterator[Comparison]:
    """Case l: ids of texts and marks, by the public ranks of Qwen where they are installed.

    Else by those that the texts of the known set touch; other texts may then differ for want of a rank.
    """
    stated = _read_rows(folder, "l_tokenizer_proxy")
    tokenizer = TextTokenizer.from_ranks(
        read_tiktoken_ranks(_ranks_file(folder)), CosyVoiceVersion.V2, _FIRST_SPECIAL_ID
    )
    ours = [tokenizer.encode(row["text"]) for row in stated["cases"]]
    yield _compare_rows("l_tokenizer_proxy", "cases", ours, [row["ids"] for row in stated["cases"]])
    marks = [tokenizer.encode(mark) for mark in stated["special"]]
    yield _compare_rows("l_tokenizer_proxy", "special", marks, [[id] for id in stated["special"].values()])


def _ranks_file(folder: Path) -> Path:
    own = next(iter(sorted(folder.glob("*.tiktoken"))), None)
    found = find_spec("dashscope")
    installed = Path(found.origin).parent / "resources" / "qwen.tiktoken" if found and found.origin else None
    return own or (installed if installed and installed.exists() else KNOWN_RANKS)


def _read_rows(folder: Path, case: str) -> Any:
    return json.loads((folder / f"{case}.json").read_text("utf-8"))


def _compare_rows(case: str, name: str, ours: Sequence[object], theirs: Sequence[object]) -> Comparison:
    different = sum(mine != other for mine, other in zip(ours, theirs, strict=False))
    return Comparison(case, name, float(different + abs(len(ours) - len(theirs))), 0.0)


def _sample_rate(name: int) -> int:
    return 44_100 if name == 44 else name * 1000


def _teacher_forced_outputs(lm: SpeechLm, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    text = [*arrays["prompt_text"][0].tolist(), *arrays["text"][0].tolist()]
    x, valid = embed_inputs(lm, [[*_prefix(text), *_speech(arrays["prompt_speech"][0].tolist())]])
    hidden, state = lm.step(x, lm.init_state(1, x.shape[1] + len(arrays["step_tokens"])), valid)
    logits = [lm.logits(last_valid_hidden(hidden, valid))]
    for id in arrays["step_tokens"].tolist():
        answered, state = lm.step(*_step_inputs(lm, id, state))
        logits.append(lm.logits(answered[:, -1]))
    steps = torch.cat(logits)
    return {
        "lm_input": x,
        "prefill_hidden": hidden,
        "prefill_logits": lm.logits(hidden),
        "logits": steps,
        "logp": steps.log_softmax(-1),
    }


def _step_inputs(lm: SpeechLm, id: int, state: Any) -> tuple[Tensor, Any, Tensor]:
    x, valid = embed_inputs(lm, [_speech([id])])
    return x, state, valid


def _prefix(text: Sequence[int]) -> list[LmInput]:
    return [
        LmInput(LmInputKind.START),
        *(LmInput(LmInputKind.TEXT, id) for id in text),
        LmInput(LmInputKind.TURN),
    ]


def _speech(ids: Sequence[int]) -> list[LmInput]:
    return [LmInput(LmInputKind.SPEECH, id) for id in ids]


def _utterances(lm: SpeechLm, arrays: Mapping[str, Tensor]) -> dict[str, list[int]]:
    ids = SpecialIds(lm.config.version, lm.config.codebook_size)
    prompt_text = arrays["prompt_text"][0].tolist()
    if lm.config.version is CosyVoiceVersion.V3:
        prompt_text[3] = ids.end_of_prompt
    prompt = LmPrompt(tuple(prompt_text), tuple(arrays["prompt_speech"][0].tolist()))
    text = arrays["text"][0].tolist()
    spoken = {
        "greedy_zs": _generate(lm, ids, prompt, text, _likeliest),
        "greedy_noprompt_speech": _generate(lm, ids, replace(prompt, speech_ids=()), text, _likeliest),
        "speech_argmax60_zs": _generate(lm, ids, prompt, text, _SoundsOnly(ids, 60)),
    }
    if lm.config.version is CosyVoiceVersion.V2:
        spoken["greedy_sft"] = _generate(lm, ids, LmPrompt(), text, _likeliest)
    return spoken


def _generate(lm: SpeechLm, ids: SpecialIds, prompt: LmPrompt, text: list[int], choose: Choose) -> list[int]:
    generation = CompatOneShotGeneration(ids, prompt)
    generation.push_text(text)
    generation.end_text()
    most = int(generation.rule.max_ratio * len(text))
    state = lm.init_state(1, len(prompt.text_ids) + len(prompt.speech_ids) + len(text) + most + 2)
    while (ask := generation.ask()) is not None:
        # A reduced vocabulary ends before the id that version 3 looks for; its last row stands for it.
        inputs = [replace(unit, id=min(unit.id, lm.config.text_vocab_size - 1)) for unit in ask.inputs]
        x, valid = embed_inputs(lm, [inputs])
        hidden, state = lm.step(x, state, valid)
        generation.answer(choose(lm.logits(last_valid_hidden(hidden, valid))[0].numpy(), ask))
    return generation.speech_ids


def _likeliest(logits: NDArray[np.float32], ask: SamplingRequest) -> int:
    logits[list(ask.forbidden)] = -np.inf
    return int(logits.argmax())


class _SoundsOnly:
    """The likeliest sound so many times, then the end."""

    def __init__(self, ids: SpecialIds, sounds: int) -> None:
        self._ids, self._left = ids, sounds

    def __call__(self, logits: NDArray[np.float32], ask: SamplingRequest) -> int:
        self._left -= 1
        return int(logits[: self._ids.codebook_size].argmax()) if self._left >= 0 else self._ids.end


class _Replayed:
    """Uniform numbers from a list."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers = numbers
        self.used = 0

    def random(self) -> float:
        self.used += 1
        return self._numbers[self.used - 1]


class _Scripted:
    """One row of h_bistream: a model that answers what the script says and writes down what it is fed."""

    def __init__(self, row: Row, codes: int) -> None:
        self._row = row
        self._ids = SpecialIds(CosyVoiceVersion.V3 if row["v3"] else CosyVoiceVersion.V2, codes)
        self._words = {"fill": self._ids.fill, "eos": self._ids.end}
        self._script, self._final_script = iter(row["script"]), iter(row["final_script"])
        self._fed: list[list[str]] = []

    def run(self) -> tuple[list[list[str]], list[int], str | None]:
        prompt = LmPrompt(tuple(self._row["prompt_text_ids"]), tuple(self._row["prompt_speech_ids"]))
        generation = CompatBistreamGeneration(self._ids, prompt)
        try:
            self._push_all(generation)
        except UnexpectedIdError as error:
            return self._fed, generation.speech_ids, str(error)
        return self._fed, generation.speech_ids, None

    def _push_all(self, generation: Generation) -> None:
        """Each piece when the one before is spoken, as upstream's iterator of text does."""
        first = _FIRST_TEXT_ID
        for count in self._row["text_chunks"]:
            generation.push_text(range(first, first + count))
            first += count
            self._answer_all(generation)
        generation.end_text()
        self._answer_all(generation)

    def _answer_all(self, generation: Generation) -> None:
        while (ask := generation.ask()) is not None:
            self._fed.append([_upstream_name(unit) for unit in ask.inputs])
            generation.answer(self._answer(ask))

    def _answer(self, ask: SamplingRequest) -> int:
        if ask.forced is not None:
            return ask.forced
        said = next(self._script if ask.forbidden else self._final_script)
        return self._words[said] if isinstance(said, str) else int(said)


def _upstream_name(unit: LmInput) -> str:
    named = {
        LmInputKind.START: "sos",
        LmInputKind.TURN: "task",
        LmInputKind.TEXT: f"T{unit.id}",
        LmInputKind.SPEECH: f"S{unit.id}",
    }
    return named[unit.kind]


_FRAMES_AGAIN = 8
_FRAME_SAMPLES = 480
_CHINESE_STEPS = ("blank", "corner", "bracket", "split")


def _streamed(row: Row, version: CosyVoiceVersion) -> Row:
    hops = HopSchedule(row["P"], row["hop_before"])
    chunks = list(iter(lambda: hops.next(row["N"], ended=True), None))
    return _request(row, [_call(chunk, version) for chunk in chunks]) | {
        "stream": True,
        "hop_after": hops.hop,
    }


def _offline(row: Row, version: CosyVoiceVersion) -> Row:
    call = _call(SpeechIdChunk(0, row["N"], row["N"], final=True), version)
    return _request(row, [call]) | {"stream": False, "hop_after": row["hop_before"]}


def _request(row: Row, calls: list[dict[str, Any]]) -> dict[str, Any]:
    given = {name: row[name] for name in ("N", "P", "hop_before")}
    return given | {"calls": calls, "total_samples": sum(call["samples"] for call in calls)}


def _call(chunk: SpeechIdChunk, version: CosyVoiceVersion) -> dict[str, Any]:
    """What upstream's vocoder gets and gives: 8 frames again in version 2, everything again in version 3."""
    again = 2 * chunk.start if version is CosyVoiceVersion.V3 else min(_FRAMES_AGAIN, 2 * chunk.start)
    frames = 2 * (chunk.stop - chunk.start) + again
    held = 0 if chunk.final else _FRAMES_AGAIN
    given = 0 if chunk.start == 0 else 2 * chunk.start - _FRAMES_AGAIN
    cached = None if version is CosyVoiceVersion.V3 else _FRAME_SAMPLES * again
    return {
        "token_offset": chunk.start,
        "n_tokens": chunk.lookahead_stop,
        "streaming": not chunk.final,
        "finalize": chunk.final,
        "hift_mel_frames": frames,
        "hift_first_mel_frame": float(0 if version is CosyVoiceVersion.V3 else 2 * chunk.start - again),
        "cache_source_len": cached,
        "samples": _FRAME_SAMPLES * (2 * chunk.stop - held - given),
    }


def _english(row: Row) -> tuple[str, list[str]]:
    split = upstream_text.split_paragraph(row["spelled"], _words, UpstreamTextRules.OTHER)
    return upstream_text.spell_out_numbers(row["text"]), split


def _chinese(row: Row) -> tuple[object, ...]:
    text = row["text"]
    return (
        upstream_text.remove_blanks(text),
        upstream_text.spell_out_corner_marks(text),
        upstream_text.remove_brackets(text),
        upstream_text.split_paragraph(text, _words, UpstreamTextRules.CHINESE),
    )


def _prepared(row: Row) -> tuple[list[str], str]:
    return upstream_text.prepare(row["text"], _words), upstream_text.normalize(row["text"])


def _words(text: str) -> list[str]:
    """The tokens of the golden set."""
    return text.split(" ")
