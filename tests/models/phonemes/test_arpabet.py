"""ARPABET and Kokoro's alphabet: CMUdict's own words are the oracle of both directions."""

import lzma

import pytest

from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.hibari.prepared_files import CMUDICT
from vivavoce.models.phonemes.arpabet import from_arpabet, to_arpabet
from vivavoce.models.phonemes.english_ipa import from_ipa

SOUNDS = """
AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z ZH
""".split()


@pytest.mark.parametrize(
    ("arpabet", "phonemes"),
    [
        ("K AO0 W AA1 L S K IY0", "kɔwˈɑlski"),
        ("B AH0 N AE1 N AH0", "bənˈænə"),
        ("W AO1 T ER0", "wˈɔɾəɹ"),
        ("AH0 T EH1 N D", "ətˈɛnd"),
        ("CH AH1 R CH IH2 L", "ʧˈʌɹʧˌɪl"),
        ("TH IH1 NG", "θˈɪŋ"),
        ("HH Y UW1 JH", "hjˈuʤ"),
        ("AH0 R OW1 M AH0", "əɹˈOmə"),
    ],
)
def test_sounds_are_those_of_the_alphabet_in_both_directions(arpabet: str, phonemes: str) -> None:
    assert from_arpabet(arpabet.split()) == phonemes
    assert to_arpabet(phonemes) == arpabet.split()


def test_words_of_cmudict_come_back_as_they_were() -> None:
    lines = lzma.decompress(CMUDICT.read_bytes()).decode("ascii").splitlines()
    words = [line.split()[1:] for line in lines if not line.startswith("#")]
    assert {sound.rstrip("012") for word in words for sound in word} == set(SOUNDS)
    changed = [(word, to_arpabet(from_arpabet(word))) for word in words]
    # "AH0 R" before a vowel without stress becomes ER0, and ER0 before one with stress becomes AH0 R.
    differing = [each for each in changed if _merged(each[0]) != _merged(each[1])]
    assert len(words) > 50_000
    assert differing == []


def _merged(sounds: list[str]) -> str:
    return " ".join(sounds).replace("AH0 R", "ER0")


# As dictionaries print them, and CMUdict's entries.
@pytest.mark.parametrize(
    ("ipa", "arpabet"),
    [
        ("ʃɪˈvɔːn", "SH IH0 V AO1 N"),
        ("ˈmɪnɪt", "M IH1 N IH0 T"),
        ("maɪˈnuːt", "M AY0 N UW1 T"),
        ("ˈwɔtɚ", "W AO1 T ER0"),
        ("ˈbʌʔn̩", "B AH1 T AH0 N"),
        ("ˌkælɪˈfɔrnjə", "K AE2 L IH0 F AO1 R N Y AH0"),
        ("tʃɝtʃ", "CH ER1 CH"),
        ("bɔ̃ˈʒuʁ", "B AO0 N ZH UW1 R"),
        ("ǃ", ""),
    ],
)
def test_ipa_of_any_language_becomes_the_nearest_sounds(ipa: str, arpabet: str) -> None:
    assert to_arpabet(from_ipa(ipa)[0]) == arpabet.split()


def test_every_sound_is_a_mark_of_cosyvoice_3() -> None:
    text_tokenizer = pytest.importorskip("vivavoce.models.cosyvoice.front_end.text_tokenizer")
    marks = text_tokenizer.special_tokens(CosyVoiceVersion.V3)
    vowels = {"AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"}
    for sound in SOUNDS:
        names = [sound + stress for stress in "012"] if sound in vowels else [sound]
        assert {f"[{name}]" for name in names} <= set(marks), sound
