"""The guess at the language of a text."""

import pytest

from vivavoce.tts_engine.reading.text_language import likely_language

TEXTS = {
    "en": "Good morning, your balance is one hundred dollars and the card is active.",
    "de": "Guten Tag, wie geht es Ihnen heute?",
    "fr": "Bonjour, votre rendez-vous est le jeudi dans la matinée.",
    "es": "Buenos días, su cita es el jueves por la mañana.",
    "it": "Buongiorno, il suo appuntamento è giovedì mattina, grazie.",
    "pt": "Bom dia, você não está na lista.",
    "nl": "Goedendag, uw afspraak is vandaag met de dokter van het ziekenhuis.",
    "pl": "Dzień dobry, jak się pan czuje?",
    "sv": "God dag, jag har inte tid och det är sent.",
    "tr": "Merhaba, bugün nasıl gidiyor? Çok teşekkürler.",
    "cs": "Dobrý den, jak se dnes máte?",
    "ru": "Здравствуйте, ваша запись в четверг.",
    "uk": "Вітаю, ваш запис у четвер о десятій.",
    "ja": "こんにちは、予約は木曜日です。",
    "zh": "您好，您的预约在星期四。",
    "ko": "안녕하세요, 예약은 목요일입니다.",
    "ar": "مرحبًا، موعدك يوم الخميس.",
    "el": "Καλημέρα, το ραντεβού σας είναι την Πέμπτη.",
    "hi": "नमस्ते, आपकी नियुक्ति गुरुवार को है।",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_sentence_of_each_language_is_recognised(language: str) -> None:
    assert likely_language(TEXTS[language]) == language


@pytest.mark.parametrize("text", ["", "OK.", "12:45", "Siobhan Müller", "Tel. 0417", "¿?"])
def test_a_text_that_is_not_clear_is_of_no_language(text: str) -> None:
    assert likely_language(text) is None
