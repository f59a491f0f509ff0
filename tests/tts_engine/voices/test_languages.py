"""The language of a text against those of its voice."""

import logging

import pytest

from vivavoce.tts_engine.errors import LanguageNotSpoken
from vivavoce.tts_engine.voices.languages import OtherLanguage, language_read, require_language, speaks
from vivavoce.tts_engine.voices.voices import Voice

ANNA = Voice("anna", "de-AT", "", ("fr",))


def test_the_language_of_a_text_is_compared_without_its_region() -> None:
    for language in ("de", "DE_ch", "fr-CA", "mul", None, ""):
        require_language(ANNA, language)
    with pytest.raises(LanguageNotSpoken, match="anna speaks de-AT, fr; the language of the text is 'nl'"):
        require_language(ANNA, "nl")
    assert speaks(Voice("all", "mul", ""), "nl")


@pytest.mark.parametrize("other", OtherLanguage)
def test_a_part_in_a_language_that_the_voice_lacks_is_refused_or_read_by_its_own_rules(
    other: OtherLanguage, caplog: pytest.LogCaptureFixture
) -> None:
    assert language_read(ANNA, "fr-CA", other) == "fr-CA"
    if other is not OtherLanguage.WARN:
        with pytest.raises(LanguageNotSpoken):
            language_read(ANNA, "nl", other)
        return
    with caplog.at_level(logging.WARNING):
        assert language_read(ANNA, "nl", other) is None
    assert caplog.messages == ["the voice anna does not speak nl; it reads the text by its own rules"]
