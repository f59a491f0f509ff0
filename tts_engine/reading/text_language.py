"""A guess at the language of a text, to tell that its voice does not speak it.

Scripts of one language decide at once. Languages in Latin letters are told apart by their commonest words: at
least two of them, and twice as many as of any other language. It is a guess.
"""

import re
from collections import Counter
from typing import Final

MAX_CHARACTERS: Final = 2_000  # of the beginning; the rest is in the same language
_MIN_WORDS: Final = 2
_LEAD: Final = 2  # times the words of the second language
_MIN_SCRIPT_SHARE: Final = 0.5  # of the letters
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SCRIPTS: Final = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "uk": re.compile(r"[іїєґІЇЄҐ]"),
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "el": re.compile(r"[\u0370-\u03ff]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "he": re.compile(r"[\u0590-\u05ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
}
_MARKING: Final = {"ja": 0.1, "uk": 0.02}  # shares of letters that are no other language's
_COMMON_WORDS: Final = {
    "en": "the and of to is are you your for with this that was have will not we it from what please",
    "de": "der die das und ist nicht ich sie wir ein eine mit für auf zu wie es ihnen guten tag heute bitte",
    "fr": "le la les des est et vous je nous un une pour dans pas avec bonjour que qui votre sont merci",
    "es": "el la los las es y usted un una para con por que su está hola gracias buenos días muy pero",
    "it": "il lo gli è e di che un una per con non sono buongiorno grazie questo della suo come ciao",
    "pt": "o os as é e você um uma para com não que seu está obrigado bom dia são muito da do",
    "nl": "de het een en is niet ik u wij van voor met op dat goedendag uw zijn deze naar vandaag",
    "pl": "i w na nie jest się do to że z dzień dobry jak proszę pan pani są dziękuję",
    "sv": "och det att är en ett jag du inte för med på som har god dag tack vi",
    "tr": "ve bir bu için ile çok değil merhaba teşekkürler siz ben nasıl var mı günaydın bugün",
    "cs": "a je se na v že to jsem není dobrý den prosím děkuji jak pro jsou váš dnes",
}
_WORDS_OF: Final = {language: frozenset(words.split()) for language, words in _COMMON_WORDS.items()}
_LANGUAGES_OF: Final = {
    word: [language for language, words in _WORDS_OF.items() if word in words]
    for word in frozenset[str]().union(*_WORDS_OF.values())
}


def likely_language(text: str) -> str | None:
    """The language of a text, ISO 639-1; None if it is not clear."""
    text = text[:MAX_CHARACTERS]
    return _language_of_script(text) or _language_of_words(text)


def _language_of_script(text: str) -> str | None:
    if text.isascii():
        return None
    letters = len(_LETTER.findall(text))
    for language, script in _SCRIPTS.items():
        share = len(script.findall(text)) / max(letters, 1)
        if share >= _MARKING.get(language, _MIN_SCRIPT_SHARE):
            return language
    return None


def _language_of_words(text: str) -> str | None:
    found = Counter(
        language for word in _WORD.findall(text.lower()) for language in _LANGUAGES_OF.get(word, ())
    )
    first, second = (*found.most_common(2), (None, 0), (None, 0))[:2]
    return first[0] if first[1] >= max(_MIN_WORDS, _LEAD * second[1]) else None
