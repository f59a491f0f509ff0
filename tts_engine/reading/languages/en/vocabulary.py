"""Vocabulary of American English, loaded from ``table.toml``.

Tables only: the recognisers that use them are in the modules beside this one. The comments in the file say
what each table is for.
"""

from ...clause_boundaries import AbbreviationKind
from ...kit.data_files import expand_names, load_tables
from ...lazy_pattern import LazyPattern

_TABLES = load_tables(__file__, "table.toml")


def _words(name: str) -> frozenset[str]:
    return frozenset(_TABLES[name].split())


def _readings(name: str) -> dict[str, str]:
    return dict(_TABLES[name])


def _pair(text: str) -> tuple[str, str]:
    one, many = text.split("|")
    return one, many


def _currency(text: str) -> tuple[str, str, str, str]:
    one, many, hundredth, hundredths = text.split("|")
    return one, many, hundredth, hundredths


# Calendar
MONTHS: tuple[str, ...] = tuple(_TABLES["months"].split())
# Lower-case names and abbreviations to names.
MONTH_NAMES = (
    {name.lower(): name for name in MONTHS}
    | {name[:3].lower(): name for name in MONTHS}
    | {"sept": "September"}
)
WEEKDAY_NAMES = _readings("weekday_names")
WEEKDAY_LETTERS = _readings("weekday_letters")
AM_PM = _words("am_pm")
WORDS_AFTER_AM_PM = _words("words_after_am_pm")
WORDS_BEFORE_TIMES = _words("words_before_times")
WORDS_BEFORE_DURATIONS = _words("words_before_durations")
WORDS_AFTER_DURATIONS = _words("words_after_durations")
WORDS_BEFORE_MINUTES = _words("words_before_minutes")
WORDS_AFTER_MINUTES = _words("words_after_minutes")
WORDS_AFTER_ABOUT = _words("words_after_about")
WORDS_OF_COOKING = _words("words_of_cooking")
EVENTS_OF_SYSTEMS = _words("events_of_systems")
STATES_OF_SYSTEMS = _words("states_of_systems")
WORDS_BEFORE_DECADES = _words("words_before_decades")
WORDS_OF_TIME = _words("words_of_time")
REGULATORS = _words("regulators")
INTERJECTIONS = _words("interjections")
WORDS_BEFORE_AGES = _words("words_before_ages")
DECADE_NOUNS = _words("decade_nouns")
WORDS_OF_NEW_DATES = _words("words_of_new_dates")
WORDS_BEFORE_YEARS = _words("words_before_years")
WORDS_BEFORE_DATES = _words("words_before_dates")
WORDS_BEFORE_VERSIONS = _words("words_before_versions")
WORDS_BEFORE_DIRECTIONS = _words("words_before_directions")

NOUNS_OF_EXPIRY = _words("nouns_of_expiry")
WORDS_BEFORE_EXPIRY = _words("words_before_expiry")

# Abbreviations, as written without the last full stop
ABBREVIATIONS: dict[str, tuple[str, AbbreviationKind]] = {
    short: (spoken, kind)
    for kind in AbbreviationKind
    for short, spoken in _TABLES["abbreviations"][kind.name.lower()].items()
}
STOPLESS_ABBREVIATIONS = _words("stopless_abbreviations")
# As a sentence begins: "Pls. send", "Incl. tax"
_ABBREVIATIONS_AT_START = {
    short.title(): reading
    for short, reading in ABBREVIATIONS.items()
    if len(short) > 2 and short.isalpha() and short.islower() and short not in _words("lower_abbreviations")
}
ABBREVIATIONS = _ABBREVIATIONS_AT_START | ABBREVIATIONS
STOPLESS_ABBREVIATIONS |= {
    short for short in _ABBREVIATIONS_AT_START if short.lower() in STOPLESS_ABBREVIATIONS
}
ABBREVIATIONS_IN_PROGRAMS = _words("abbreviations_in_programs")
LAST_ABBREVIATIONS = _readings("last_abbreviations")
AMBIGUOUS_ABBREVIATIONS = _words("ambiguous_abbreviations")
STREET_ABBREVIATIONS = _readings("street_abbreviations")
SLASH_ABBREVIATIONS = _readings("slash_abbreviations")
BOOKS_OF_THE_BIBLE = _readings("books_of_the_bible")
# In small letters, as a sentence begins, and in capitals if that is nothing else
CHAT_ABBREVIATIONS = {
    form: words
    for short, words in _TABLES["chat_abbreviations"].items()
    for form in ((short, short.title(), short.upper()) if len(short) > 2 else (short,))
}
# The readings of an abbreviation, each with what follows it
ABBREVIATIONS_BEFORE = {
    short: tuple(
        (word, LazyPattern(f" ?(?:{ahead})")) for word, ahead in (text.split(": ", 1) for text in texts)
    )
    for short, texts in _TABLES["abbreviations_before"].items()
}
# The same with the words that may stand before it
ABBREVIATIONS_AFTER = {
    short: tuple((word, frozenset(nouns.split())) for word, nouns in (text.split(": ", 1) for text in texts))
    for short, texts in _TABLES["abbreviations_after"].items()
}
CONTRACTED_ABBREVIATIONS = _readings("contracted_abbreviations")
COUNTED_ABBREVIATIONS = _readings("counted_abbreviations")
ABBREVIATIONS_AFTER_PRICES = _readings("abbreviations_after_prices")
WORDS_BEFORE_ANSWERS = _words("words_before_answers")
NOUNS_BEFORE_HOURS_OF_WORK = _words("nouns_before_hours_of_work")
NOUNS_AFTER_HOURS_OF_WORK = _words("nouns_after_hours_of_work")
SENTENCE_STARTERS = _words("sentence_starters")
STATES = _readings("states")
STATES_OF_NEWSPAPERS = _readings("states_of_newspapers")
UNAMBIGUOUS_STATES = _words("unambiguous_states")
# After "Boston," the letters of these may be an answer, a document or a doctor.
STATES_AFTER_CITIES = frozenset(STATES) - {"OK", "HI", "ID", "MD"}
DIRECTIONS = _readings("directions")
STREET_WORDS = _words("street_words")
CAPITALIZED_STREET_WORDS = frozenset(word.title() for word in STREET_WORDS)
NAME_SUFFIXES = frozenset(("Jr", "Sr"))

# Units and money
UNITS = {unit: _pair(forms) for unit, forms in _TABLES["units"].items()}
DRUGS_IN_UNITS = _words("drugs_in_units")
UNITS_WITHOUT_SPACE = _words("units_without_space")
NOUNS_OF_MILLIONS = _words("nouns_of_millions")
NOUNS_AFTER_HALF = _words("nouns_after_half")
WORDS_OF_CHANGE = _words("words_of_change")
LENGTH_WORDS = _words("length_words")
SCREEN_NOUNS = _words("screen_nouns")
SCREEN_ADJECTIVES = _words("screen_adjectives")
MEASURED_NOUNS = _words("measured_nouns")
WORDS_AFTER_FEET = _words("words_after_feet")
HOME_NOUNS = _words("home_nouns")
AMP_NOUNS = _words("amp_nouns")
NOUNS_AFTER_PER = _words("nouns_after_per")
RATE_UNITS = _readings("rate_units") | {unit: unit for unit in _TABLES["plain_rate_units"].split()}
# Singular and plural of the unit and of its hundredth.
CURRENCIES = {sign: _currency(forms) for sign, forms in expand_names(_TABLES["currencies"]).items()}
MAGNITUDES = _readings("magnitudes")
PRICED_NOUNS = _words("priced_nouns")
WORDS_AFTER_PRICES = _words("words_after_prices")

# Words beside numbers
CODE_WORDS = _words("code_words")
IDENTIFIED_NOUNS = _words("identified_nouns")
NUMBER_NOUNS = _words("number_nouns")
LINKING_WORDS = _words("linking_words")
WORDS_BEFORE_CODES = IDENTIFIED_NOUNS | NUMBER_NOUNS | CODE_WORDS | LINKING_WORDS
NOUNS_AFTER_PAIRS = _words("nouns_after_pairs")
SYSTEMS_WITH_VERSIONS = _words("systems_with_versions")
SEAT_NOUNS = _words("seat_nouns")
WORDS_BEFORE_UNITS_OF_STREETS = _words("words_before_units_of_streets") | {""}
TRAIN_NAMES = _words("train_names")
COURSES = _readings("courses")
PROVINCES = _readings("provinces")
AUSTRALIAN_STATES = _readings("australian_states")
FOLDERS = _words("folders")
PARTS_OF_THE_BODY = _words("parts_of_the_body")
SYMPTOMS = _words("symptoms")
WORDS_AFTER_PARTS = _words("words_after_parts")
LAST_WORDS_AFTER_PARTS = _words("last_words_after_parts")
REGIONS = _words("regions")
SIDES_OF_PLACES = _words("sides_of_places")
WORDS_BEFORE_SIDES = _words("words_before_sides")
SEQUENCE_NOUNS = _words("sequence_nouns")
WORDS_BEFORE_MAGNITUDES = _words("words_before_magnitudes")
JOINED_PAIRS = _words("joined_pairs")
WORDS_BEFORE_PHONES = _words("words_before_phones")
WORDS_BEFORE_PLATES = _words("words_before_plates")
COUNTED_NOUNS = _words("counted_nouns")
STATION_WORDS = _words("station_words")
VERBS_BEFORE_STATIONS = _words("verbs_before_stations")
AIRLINE_CODES = _words("airline_codes")
AMBIGUOUS_AIRLINE_CODES = _words("ambiguous_airline_codes")
BEGINNINGS_OF_WORDS_OF_TRIPS = _words("beginnings_of_words_of_trips")
WORDS_BEFORE_PAIRED_DIGITS = _words("words_before_paired_digits")
IDIOMATIC_NUMBERS = _readings("idiomatic_numbers")
NOUNS_AFTER_K = _words("nouns_after_k")
NOUNS_BEFORE_ROMAN_NUMERALS = _words("nouns_before_roman_numerals")
RULER_NAMES = _words("ruler_names")
DETERMINERS = _words("determiners")
WORDS_BEFORE_ONE = _words("words_before_one")
WORDS_BEFORE_UNITS = (WORDS_BEFORE_ONE | _words("words_before_units")) - {"a", "an"}
NOUNS_SET_TO = _words("nouns_set_to")
SERVICE_NUMBERS = _words("service_numbers")
ERAS = _words("eras")
LARGE_COUNTS = _readings("large_counts")

# Letters, words and signs
LETTER_NAMES = _readings("letter_names")
NOUNS_BEFORE_LETTERS = _words("nouns_before_letters")
ENDINGS_OF_CHORDS = _readings("endings_of_chords")
ELEMENTS_OF_ISOTOPES = _readings("elements_of_isotopes")
KEYS_OF_KEYBOARDS = _readings("keys_of_keyboards")
SHORT_NAMES = _words("short_names")
SHORT_WORDS_OF_PASSWORDS = _words("short_words_of_passwords")
WORDS_OF_PROGRAMS = _words("words_of_programs")
WORDS_AFTER_LETTERS = _words("words_after_letters")
PRONOUNCED_ACRONYMS = {word: word.lower() for word in _TABLES["lower_case_acronyms"].split()} | _readings(
    "pronounced_acronyms"
)
SPELLED_INITIALISMS = _words("spelled_initialisms")
INITIALISMS_THAT_ARE_WORDS = _words("initialisms_that_are_words")
COMMON_WORDS = _words("common_words")
PRONOUNCED_DOMAINS = _words("pronounced_domains")
NOUNS_AFTER_LIVE = _words("nouns_after_live")
SYMBOLS = _readings("symbols")
CALL_WORDS = _words("call_words")
