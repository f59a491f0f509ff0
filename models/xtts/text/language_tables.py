"""Tables of the text cleaning of XTTS: abbreviations, symbols and ordinal endings of each language.

XTTS was trained on text that upstream had cleaned with these words, so the tables follow it, its choices
included.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/tokenizer.py.
"""

# Characters that a text may have per language before upstream warns of cut speech.
CHARACTER_LIMITS = {
    "en": 250,
    "de": 253,
    "fr": 273,
    "es": 239,
    "it": 213,
    "pt": 203,
    "pl": 224,
    "zh": 82,
    "ar": 166,
    "cs": 186,
    "ru": 182,
    "nl": 251,
    "tr": 226,
    "ja": 71,
    "hu": 224,
    "ko": 95,
    "hi": 150,
}

# Written with a full stop, but for Russian, where the hyphen is part of the word.
ABBREVIATIONS = {
    "en": {
        "mrs": "misess",
        "mr": "mister",
        "dr": "doctor",
        "st": "saint",
        "co": "company",
        "jr": "junior",
        "maj": "major",
        "gen": "general",
        "drs": "doctors",
        "rev": "reverend",
        "lt": "lieutenant",
        "hon": "honorable",
        "sgt": "sergeant",
        "capt": "captain",
        "esq": "esquire",
        "ltd": "limited",
        "col": "colonel",
        "ft": "fort",
    },
    "es": {
        "sra": "señora",
        "sr": "señor",
        "dr": "doctor",
        "dra": "doctora",
        "st": "santo",
        "co": "compañía",
        "jr": "junior",
        "ltd": "limitada",
    },
    "fr": {
        "mme": "madame",
        "mr": "monsieur",
        "dr": "docteur",
        "st": "saint",
        "co": "compagnie",
        "jr": "junior",
        "ltd": "limitée",
    },
    "de": {"fr": "frau", "dr": "doktor", "st": "sankt", "co": "firma", "jr": "junior"},
    "pt": {
        "sra": "senhora",
        "sr": "senhor",
        "dr": "doutor",
        "dra": "doutora",
        "st": "santo",
        "co": "companhia",
        "jr": "júnior",
        "ltd": "limitada",
    },
    "it": {
        "sig": "signore",
        "dr": "dottore",
        "st": "santo",
        "co": "compagnia",
        "jr": "junior",
        "ltd": "limitata",
    },
    "pl": {"p": "pani", "m": "pan", "dr": "doktor", "sw": "święty", "jr": "junior"},
    "cs": {"dr": "doktor", "ing": "inženýr", "p": "pan"},
    "ru": {"г-жа": "госпожа", "г-н": "господин", "д-р": "доктор"},
    "nl": {"dhr": "de heer", "mevr": "mevrouw", "dr": "dokter", "jhr": "jonkheer"},
    "tr": {"b": "bay", "byk": "büyük", "dr": "doktor"},
    "hu": {"dr": "doktor", "b": "bácsi", "nőv": "nővér"},
}

# Words of & @ % # $ £ ° in this order.
SYMBOLS = "&@%#$£°"
SYMBOL_WORDS = {
    "en": ("and", "at", "percent", "hash", "dollar", "pound", "degree"),
    "es": ("y", "arroba", "por ciento", "numeral", "dolar", "libra", "grados"),
    "fr": ("et", "arobase", "pour cent", "dièse", "dollar", "livre", "degrés"),
    "de": ("und", "at", "prozent", "raute", "dollar", "pfund", "grad"),
    "pt": ("e", "arroba", "por cento", "cardinal", "dólar", "libra", "graus"),
    "it": ("e", "chiocciola", "per cento", "cancelletto", "dollaro", "sterlina", "gradi"),
    "pl": ("i", "małpa", "procent", "krzyżyk", "dolar", "funt", "stopnie"),
    "ar": ("و", "على", "في المئة", "رقم", "دولار", "جنيه", "درجة"),
    "cs": ("a", "na", "procento", "křížek", "dolar", "libra", "stupně"),
    "ru": ("и", "собака", "процентов", "номер", "доллар", "фунт", "градус"),
    "nl": ("en", "bij", "procent", "hekje", "dollar", "pond", "graden"),
    "tr": ("ve", "at", "yüzde", "diyez", "dolar", "sterlin", "derece"),
    "ko": ("그리고", "에", "퍼센트", "번호", "달러", "파운드", "도"),
    "hu": ("és", "kukac", "százalék", "kettőskereszt", "dollár", "font", "fok"),
}

# What follows the digits of an ordinal, as a regular expression.
ORDINAL_ENDINGS = {
    "en": "st|nd|rd|th",
    "es": "º|ª|er|o|a|os|as",
    "fr": "º|ª|er|re|e|ème",
    "de": r"st|nd|rd|th|º|ª|\.(?=\s|$)",
    "pt": "º|ª|o|a|os|as",
    "it": "º|°|ª|o|a|i|e",
    "pl": "º|ª|st|nd|rd|th",
    "ar": "ون|ين|ث|ر|ى",
    "cs": r"\.(?=\s|$)",
    "ru": "-й|-я|-е|-ое|-ье|-го",
    "nl": "de|ste|e",
    "tr": r"\.|inci|nci|uncu|üncü",
    "ko": "번째|번|차|째",
    "hu": r"\.|adik|edik|odik|ödik|ödike|ik",
}

# Between whole and broken part of an amount of money.
MONEY_JOINTS = {"es": " con ", "fr": " et ", "de": " und ", "pt": " e ", "it": " e "}
DEFAULT_MONEY_JOINT = ", "
CURRENCIES = {"£": "GBP", "$": "USD", "€": "EUR"}
# Languages that separate thousands with commas; the others do with full stops.
COMMA_THOUSANDS = frozenset({"en", "ru"})
EASTERN = frozenset({"zh", "ja", "ko"})  # these are romanized
