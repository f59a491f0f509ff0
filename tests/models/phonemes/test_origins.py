"""Sounds of names by the letters of their origin."""

import pytest

from vivavoce.models.phonemes.english_ipa import from_ipa
from vivavoce.models.phonemes.origins.foreign_names import ForeignNames
from vivavoce.models.phonemes.origins.name_origin import NameOrigin

INITIALS = [*"bpmfdtnlgkhjqxrzcsyw", "", "zh", "ch", "sh"]
FINALS = (
    "a o e ai ei ao ou an en ang eng ong er i ia ie iao iu ian in iang ing iong"
    " u ua uo uai ui uan un uang ue ü üe"
).split()


@pytest.fixture(scope="module")
def names() -> ForeignNames:
    return ForeignNames.load()


@pytest.fixture(scope="module")
def origins(names: ForeignNames) -> dict[str, NameOrigin]:
    return {origin.name: origin for origin in names.origins}


def test_every_sound_of_the_tables_is_english(origins: dict[str, NameOrigin]) -> None:
    for origin in origins.values():
        for table in ("sounds", "said", "beside"):
            for ipa in origin.table.get(table, {}).values():
                assert from_ipa(ipa)[1] == set(), (origin.name, ipa)


def test_every_common_name_is_read_by_its_own_rules(origins: dict[str, NameOrigin]) -> None:
    unread = {
        (origin.name, name)
        for origin in origins.values()
        for name in origin.table["names"].split()
        if origin.ipa(name) is None
    }
    assert unread == set()


def test_pinyin_has_its_400_syllables_and_no_others(origins: dict[str, NameOrigin]) -> None:
    pinyin = origins["pinyin"]
    syllables = {initial + final for initial in INITIALS for final in FINALS}
    read = {syllable for syllable in syllables if pinyin.ipa(f"{syllable}'da") is not None}
    assert 400 <= len(read) <= 420
    assert read >= {"zhuang", "xiong", "nü", "lüe", "er", "qiu", "cui", "ri", "weng", "yue"}
    assert not read & {"xa", "qo", "bong", "fi", "zhia", "jang", "wi", "er" + "ng"}


@pytest.mark.parametrize(
    ("name", "ipa"),
    [
        ("jinan", "dʒinˈɑn"),
        ("xian", "ʃˈjɛn"),
        ("xi'an", "ʃiˈɑn"),
        ("qianxue", "tʃjɛnʃˈwɛ"),
        ("fangan", "fɑnɡˈɑn"),
        ("hello", None),
    ],
)
def test_pinyin_is_parted_as_it_is_written(
    origins: dict[str, NameOrigin], name: str, ipa: str | None
) -> None:
    assert origins["pinyin"].ipa(name) == ipa


@pytest.mark.parametrize(
    ("origin", "name", "ipa"),
    [
        ("spanish", "Ramón", "rɑmˈoʊn"),
        ("spanish", "Ibarrola", "ˌibərˈoʊlə"),
        ("portuguese", "Conceição", "ˌkoʊnseɪsˈaʊ"),
        ("polish", "Szczęsny", "ʃtʃˈɛnsnɪ"),
        ("irish", "Caoimhe", "kˈivə"),
        ("french", "Beauchêne", "boʊʃˈɛn"),
        ("german", "Häußler", "hˈɔɪslər"),
        ("vietnamese", "Khuyên", "kˈwiɛn"),
        ("yoruba", "Ṣọlá", "ʃˈɔlə"),
        ("igbo", "Nkiruka", "ˌəŋkirˈukə"),
    ],
)
def test_a_name_shows_its_origin(
    names: ForeignNames, origins: dict[str, NameOrigin], origin: str, name: str, ipa: str
) -> None:
    assert names.ipa(name) == origins[origin].ipa(name.lower())
    assert from_ipa(names.ipa(name) or "")[0] == from_ipa(ipa)[0]


def test_a_name_without_a_cue_takes_the_origin_of_its_neighbour(names: ForeignNames) -> None:
    assert names.ipa("Morata") is None
    assert names.ipa("Morata", ["Juan"]) == "mɔrˈɑtə"
    assert names.ipa("Delan", ["Zhang"]) == "dəlˈɑn"
    assert names.ipa("Blackthorpe", ["Juan"]) is None


def test_a_name_that_english_has_too_needs_a_neighbour(names: ForeignNames) -> None:
    assert names.ipa_beside("Jean", ["Luc"]) == "ˈʒɑn"
    assert names.ipa_beside("Jean", ["Smith"]) is None
