"""What the normaliser knows by heart: abbreviations, units, currencies, acronyms, words beside numbers.

Tables only; number words are ``amount_words``'s, the reading of running text is in ``normalize``. American
English.
Source: the Unicode CLDR names of months, days and currencies; everyday telephone usage for the rest.
"""

from enum import Enum, auto

# The letters whose capital alone is a word too: spelled so that readers say their names. Others stand for
# themselves.
LETTER_NAMES = {"A": "eh", "I": "eye"}
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
MONTH_NAMES = {name.lower(): name for name in MONTHS} | {name[:3].lower(): name for name in MONTHS}
MONTH_NAMES["sept"] = "September"
WEEKDAY_NAMES = {
    "mon": "Monday",
    "tue": "Tuesday",
    "tues": "Tuesday",
    "wed": "Wednesday",
    "thu": "Thursday",
    "thur": "Thursday",
    "thurs": "Thursday",
    "fri": "Friday",
    "sat": "Saturday",
    "sun": "Sunday",
}


class AbbreviationKind(Enum):
    """What may follow an abbreviation's full stop."""

    TITLE = auto()  # a name: never the end of a sentence
    NUMBERED = auto()  # a number; without one it is an ordinary word and its stop a full stop
    MID_SENTENCE = auto()  # more of the same sentence: "e.g.", "approx."
    MAY_END_SENTENCE = auto()  # either; a capital after it begins a new sentence


# As written, without the last full stop -> how it is said, and what may follow.
ABBREVIATIONS: dict[str, tuple[str, AbbreviationKind]] = {
    **{
        short: (said, AbbreviationKind.TITLE)
        for short, said in (
            ("Mr", "Mister"),
            ("Mrs", "Missus"),
            ("Ms", "Miz"),
            ("Dr", "Doctor"),
            ("Prof", "Professor"),
            ("Rev", "Reverend"),
            ("Hon", "Honorable"),
            ("Gen", "General"),
            ("Gov", "Governor"),
            ("Sen", "Senator"),
            ("Rep", "Representative"),
            ("Pres", "President"),
            ("Capt", "Captain"),
            ("Col", "Colonel"),
            ("Lt", "Lieutenant"),
            ("Sgt", "Sergeant"),
            ("Cpl", "Corporal"),
            ("St", "Saint"),
            ("Mt", "Mount"),
            ("Ft", "Fort"),
            ("Atty", "Attorney"),
            ("Supt", "Superintendent"),
        )
    },
    **{
        short: (said, AbbreviationKind.NUMBERED)
        for short, said in (
            ("No", "number"),
            ("no", "number"),
            ("Nos", "numbers"),
            ("nos", "numbers"),
            ("Ext", "extension"),
            ("ext", "extension"),
            ("EXT", "extension"),
            ("x", "extension"),
            ("Apt", "apartment"),
            ("apt", "apartment"),
            ("Ste", "suite"),
            ("Rm", "room"),
            ("rm", "room"),
            ("Fl", "floor"),
            ("Bldg", "building"),
            ("bldg", "building"),
            ("Vol", "volume"),
            ("vol", "volume"),
            ("Fig", "figure"),
            ("fig", "figure"),
            ("Ch", "chapter"),
            ("ch", "chapter"),
            ("Sec", "section"),
            ("Art", "article"),
            ("p", "page"),
            ("pg", "page"),
            ("pp", "pages"),
            ("Rt", "route"),
            ("Rte", "route"),
            ("Ref", "reference"),
            ("ref", "reference"),
            ("Acct", "account"),
            ("acct", "account"),
            ("Tel", "telephone"),
            ("tel", "telephone"),
        )
    },
    **{
        short: (said, AbbreviationKind.MID_SENTENCE)
        for short, said in (
            ("e.g", "for example"),
            ("E.g", "for example"),
            ("i.e", "that is"),
            ("I.e", "that is"),
            ("P.O", "P O"),
            ("a.k.a", "also known as"),
            ("Rs", "rupees"),
            ("vs", "versus"),
            ("cf", "compare"),
            ("approx", "approximately"),
            ("Approx", "approximately"),
            ("appt", "appointment"),
            ("Appt", "appointment"),
            ("incl", "including"),
            ("excl", "excluding"),
            ("dept", "department"),
            ("Dept", "department"),
            ("est", "estimated"),
            ("Est", "estimated"),
            ("Univ", "University"),
            ("Assn", "Association"),
            ("Govt", "Government"),
            ("govt", "government"),
            ("intl", "international"),
            ("Intl", "International"),
            ("attn", "attention"),
            ("Attn", "attention"),
            ("asst", "assistant"),
            ("Asst", "Assistant"),
            ("Mgr", "Manager"),
            ("temp", "temperature"),
        )
    },
    **{
        short: (said, AbbreviationKind.MAY_END_SENTENCE)
        for short, said in (
            ("etc", "et cetera"),
            ("Inc", "Incorporated"),
            ("Ltd", "Limited"),
            ("Co", "Company"),
            ("Corp", "Corporation"),
            ("Bros", "Brothers"),
            ("Jr", "Junior"),
            ("Sr", "Senior"),
            ("Esq", "Esquire"),
            ("Ave", "Avenue"),
            ("Blvd", "Boulevard"),
            ("Rd", "Road"),
            ("Ln", "Lane"),
            ("Ct", "Court"),
            ("Pl", "Place"),
            ("Pkwy", "Parkway"),
            ("Hwy", "Highway"),
            ("Sq", "Square"),
            ("Ter", "Terrace"),
            ("min", "minutes"),
            ("mins", "minutes"),
            ("hr", "hours"),
            ("hrs", "hours"),
            ("sec", "seconds"),
            ("secs", "seconds"),
            ("lb", "pounds"),
            ("lbs", "pounds"),
            ("oz", "ounces"),
            ("ft", "feet"),
            ("yd", "yards"),
            ("gal", "gallons"),
            ("tbsp", "tablespoons"),
            ("tsp", "teaspoons"),
            ("yr", "years"),
            ("yrs", "years"),
            ("wk", "weeks"),
            ("wks", "weeks"),
            ("max", "maximum"),
            ("qty", "quantity"),
            ("Qty", "quantity"),
        )
    },
}
STREET_ABBREVIATIONS = {
    "Ave": "Avenue",
    "Blvd": "Boulevard",
    "Rd": "Road",
    "Ln": "Lane",
    "Pkwy": "Parkway",
    "Hwy": "Highway",
    "St": "Street",
    "Dr": "Drive",
}
# Written with inner full stops only; the letters are said. The last full stop may end the sentence.
AM_PM = frozenset({"a.m", "p.m", "A.M", "P.M"})
# With these a sentence begins after "U.S."; other capitals go on: "U.S. Bank", "J.D. Power".
SENTENCE_STARTERS = frozenset(
    "A After All Also And Any Are As At Before But Can Could Did Do Does Each Every For He Her Here His How "
    "However I If In Is It Its Let May My No Not Now On Once One Or Our Please She Should So Some Sorry "
    "Thank Thanks That The Their Then There These They This Those To We What When Where Which Who Why Will "
    "Would Yes You Your".split()
)
# With these a sentence goes on after "5 p.m.".
WORDS_AFTER_AM_PM = frozenset(
    "ET EST EDT CT CST CDT MT MST MDT PT PST PDT AKST HST GMT UTC BST CET CEST IST Eastern Central "
    "Mountain Pacific Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
)
URI_SCHEMES = frozenset({"http", "https", "ftp", "mailto", "tel", "sip", "sips", "ws", "wss"})
TOP_LEVEL_DOMAINS = (
    "com|org|net|edu|gov|mil|info|biz|app|dev|shop|store|online|site|tech|cloud|health|bank|travel|"
    "io|ai|co|me|tv|us|uk|ca|au|de|fr|es|it|nl|eu|in|jp|cn|ch|at|be|se|no|dk|ie|nz|br|mx|example|test|local"
)
FILE_TYPES = (
    "pdf|docx?|xlsx?|pptx?|csv|txt|zip|jpe?g|png|gif|mp[34]|wav|mov|html?|xml|json|yaml|md|py|js|exe|apk|dmg"
)
PRONOUNCED_DOMAINS = frozenset(
    "com org net gov mil info biz app dev shop store online site tech cloud health bank travel co me "
    "example test local".split()
)

# Singular, plural. A space inside is a pause-free word gap.
UNITS: dict[str, tuple[str, str]] = {
    "km": ("kilometer", "kilometers"),
    "m": ("meter", "meters"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "in": ("inch", "inches"),
    "yd": ("yard", "yards"),
    "yds": ("yards", "yards"),
    "kg": ("kilogram", "kilograms"),
    "g": ("gram", "grams"),
    "mg": ("milligram", "milligrams"),
    "mcg": ("microgram", "micrograms"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "l": ("liter", "liters"),
    "L": ("liter", "liters"),
    "ml": ("milliliter", "milliliters"),
    "mL": ("milliliter", "milliliters"),
    "gal": ("gallon", "gallons"),
    "tbsp": ("tablespoon", "tablespoons"),
    "tsp": ("teaspoon", "teaspoons"),
    "mph": ("mile per hour", "miles per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "KB": ("kilobyte", "kilobytes"),
    "kB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "Kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "mAh": ("milliamp hour", "milliamp hours"),
    "V": ("volt", "volts"),
    "dB": ("decibel", "decibels"),
    "ms": ("millisecond", "milliseconds"),
    "s": ("second", "seconds"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "wk": ("week", "weeks"),
    "wks": ("week", "weeks"),
    "mo": ("month", "months"),
    "mos": ("month", "months"),
    "yr": ("year", "years"),
    "yrs": ("year", "years"),
    "m^2": ("square meter", "square meters"),
    "m2": ("square meter", "square meters"),
    "km^2": ("square kilometer", "square kilometers"),
    "km2": ("square kilometer", "square kilometers"),
    "m3": ("cubic meter", "cubic meters"),
    "sqft": ("square foot", "square feet"),
    "sq ft": ("square foot", "square feet"),
    "px": ("pixel", "pixels"),
    "pct": ("percent", "percent"),
    "x": ("times", "times"),
}
# Too short to be a unit after a space: "2 in the morning", "3 m" may be anything.
UNITS_WITHOUT_SPACE = frozenset({"in", "s", "h", "x", "g", "l", "L", "V", "W", "m"})
RATE_UNITS = {
    "mo": "month",
    "yr": "year",
    "hr": "hour",
    "h": "hour",
    "wk": "week",
    "min": "minute",
    "sec": "second",
    "s": "second",
    "lb": "pound",
    "oz": "ounce",
    "kg": "kilogram",
    "gal": "gallon",
    "mi": "mile",
    "GB": "gigabyte",
} | {
    unit: unit
    for unit in "month year hour week minute second day night person user call line seat mile unit".split()
}
# One, many, hundredth one, hundredth many.
_DOLLAR = ("dollar", "dollars", "cent", "cents")
CURRENCIES: dict[str, tuple[str, str, str, str]] = {
    "$": _DOLLAR,
    "US$": _DOLLAR,
    "USD": _DOLLAR,
    "£": ("pound", "pounds", "penny", "pence"),
    "GBP": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "EUR": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "sen", "sen"),
    "JPY": ("yen", "yen", "sen", "sen"),
    "CNY": ("yuan", "yuan", "fen", "fen"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "INR": ("rupee", "rupees", "paisa", "paise"),
    "Rs": ("rupee", "rupees", "paisa", "paise"),
    "CA$": ("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "CAD": ("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "A$": ("Australian dollar", "Australian dollars", "cent", "cents"),
    "AUD": ("Australian dollar", "Australian dollars", "cent", "cents"),
    "CHF": ("Swiss franc", "Swiss francs", "centime", "centimes"),
    "MXN": ("Mexican peso", "Mexican pesos", "centavo", "centavos"),
}
# Numbers that are said as no other number is.
IDIOMATIC_NUMBERS = {
    "401k": "four oh one K",
    "401(k)": "four oh one K",
    "403b": "four oh three B",
    "403(b)": "four oh three B",
    "529": "five twenty nine",
    "1040": "ten forty",
    "1099": "ten ninety nine",
    "480p": "four eighty P",
    "720p": "seven twenty P",
    "1080p": "ten eighty P",
    "24-7": "twenty four seven",
}
# What 4K, 5K and their like are part of the name of.
NOUNS_AFTER_K = frozenset(
    "run runs race races walk tv tvs video videos resolution monitor display screen".split()
)
# What a price stands before, in the singular: "a $5 fee".
PRICED_NOUNS = frozenset(
    "fee fees loan loans credit charge charges bill deposit refund refunds payment payments "
    "discount gift card cards limit copay deductible plan coupon bonus purchase donation "
    "rebate voucher ticket tickets surcharge penalty transfer withdrawal overdraft budget "
    "minimum increment item".split()
)
MAGNITUDES = {
    "k": "thousand",
    "K": "thousand",
    "M": "million",
    "m": "million",
    "mm": "million",
    "MM": "million",
    "B": "billion",
    "b": "billion",
    "bn": "billion",
    "T": "trillion",
    "thousand": "thousand",
    "million": "million",
    "billion": "billion",
    "trillion": "trillion",
    "hundred": "hundred",
}
SYMBOLS = {
    "@": "at",
    "+": "plus",
    "=": "equals",
    "%": "percent",
    "±": "plus or minus",
    "×": "times",
    "÷": "divided by",
    "≈": "about",
    "≤": "at most",
    "≥": "at least",
    "→": "to",
    "©": "copyright",
    "§": "section",
    "°": "degrees",
    "¢": "cents",
    "$": "dollars",
    "£": "pounds",
    "€": "euros",
    "¥": "yen",
    "₹": "rupees",
}

# What a number after it is: a code, said digit by digit.
CODE_WORDS = frozenset(
    "extension ext pin pins passcode passcodes password code codes otp confirmation reference "
    "tracking serial routing ssn zip zipcode postcode digits pincode voucher coupon promo "
    "swift iban vin imei authorization verification".split()
)
# The same when the number comes at once, or after "number", "no.", "ID", "#", "is", a colon.
IDENTIFIED_NOUNS = frozenset(
    "seat order account acct ticket case flight extension ext room invoice card policy claim member "
    "membership customer gate suite apartment unit bus route booking reservation part model license "
    "licence contract receipt transaction agent badge employee patient prescription rx locker channel "
    "area line number ref check request incident id loan meter vehicle plate".split()
)
NUMBER_NOUNS = frozenset({"number", "numbers", "no", "id", "ids", "#", "nr", "num"})
LINKING_WORDS = frozenset({"is", "was", "are", "ending", "in", "with", "the", "your", "new", "as", "reads"})
# After a small number these show that it counts something, even beside a code.
COUNTED_NOUNS = frozenset(
    "minute minutes min mins hour hours day days week weeks month months year years second seconds "
    "time times digit digits character characters letter letters percent dollar dollars cent cents "
    "euro euros pound pounds item items attempt attempts people person users calls call points mile "
    "miles am pm a.m p.m o'clock business working".split()
)
NOUNS_BEFORE_LETTERS = frozenset(
    "option plan letter letters vitamin grade press type section building apartment unit gate "
    "terminal exhibit hepatitis class team part appendix choose row block zone group level schedule "
    "form box column side".split()
)
WORDS_BEFORE_YEARS = frozenset(
    "in since circa year until by before after during copyright model class fy".split()
)
# A number of three digits after these is said as "two ten", "one oh one".
WORDS_BEFORE_PAIRED_DIGITS = frozenset("suite highway route interstate hwy error".split())
WORDS_BEFORE_DATES = frozenset("on by until till before after since due from through dated date is".split())
STREET_WORDS = frozenset(
    "street avenue road lane drive boulevard court place way terrace parkway highway square circle st "
    "ave rd ln dr blvd ct pl pkwy hwy".split()
)
NOUNS_BEFORE_ROMAN_NUMERALS = frozenset(
    "chapter part phase volume section act scene article appendix book level type stage tier title "
    "war bowl class mark version".split()
)
RULER_NAMES = frozenset(
    "king queen pope henry elizabeth louis charles george william edward richard james john paul mary "
    "philip francis benedict frederick napoleon nicholas pius leo".split()
)

# Names and words that American readers of spelling get wrong, spelled so that they get them right.
RESPELLINGS = {
    "nguyen": "win",
    "siobhan": "shivawn",
    "sean": "shawn",
    "stephen": "steven",
    "garcia": "garseea",
    "garcía": "garseea",
    "sanchez": "sanchezz",
    "josé": "ho zay",
    "maria": "mareea",
    "leah": "leea",
    "chloe": "kloey",
    "joaquin": "wah keen",
    "aaliyah": "aleea",
    "xu": "shoo",
    "uber": "oober",
    "ikea": "ikeea",
    "geico": "guyco",
    "huawei": "wah way",
    "airbnb": "air B and B",
    "copay": "co pay",
    "copays": "co pays",
}
NOUNS_AFTER_LIVE = frozenset(
    "chat chats agent agents person people representative representatives support operator operators "
    "help music event events transcript stream video assistance conversation call calls".split()
)

# Written in capitals and said as words, some with a spelling of their own.
PRONOUNCED_ACRONYMS = {
    word: word.lower()
    for word in (
        "NASA PIN PINS SIM RAM ROM LAN WAN NATO FEMA OSHA UNESCO UNICEF AIDS COVID OPEC SWAT ZIP "
        "CAPTCHA VIN GIF SCUBA RADAR LASER NAFTA FICA MEDICARE MEDICAID CAPS SONAR MODEM NASDAQ "
        "ICANN DARPA GAAP".split()
    )
} | {
    "NASA": "NASA",
    "JPEG": "jaypeg",
    "JPG": "jaypeg",
    "HIPAA": "hippa",
    "VOIP": "voip",
    "VoIP": "voip",
    "SaaS": "sass",
    "PayPal": "PayPal",
    "OK": "okay",
    "GUI": "gooey",
    "WIFI": "WiFi",
    "Ok": "okay",
    "ok": "okay",
    "COVID-19": "covid nineteen",
    "DIY": "D I Y",
    "WWI": "World War one",
    "WWII": "World War two",
}
SPELLED_INITIALISMS = frozenset(
    "ADHD EKG HDMI API APIS FAQ FAQS USA US UK EU UN UAE IBAN ASAP ETA EOD FYI AKA ATM ID IDS AI IT "
    "IP IOS IOU IRA IRS IVR ISP UI UX URL URLS USB UPS USPS UPC APR APY APN AAA AARP ACH ACT AED AM "
    "PM AMEX ANI BIOS CEO CFO COO CTO CIA CPU DIM DNI DOB DOA EFT EIN EMI EMV EOB ERA ETF EUR EV FBI "
    "FDA FDIC FICO GPA GPU HOA HIV HSA FSA IPO IPA IQ ISO KPI MIA MIT MRI NBA OEM OTP PCI PIA POA POS "
    "RMA ROI RSVP SEO SLA SOS SUV TIA TOS UTC VA VIP AWS AOL IEEE ACLU ABC AC DC AOK RV TV PC MD CD "
    "DVD OS EST EDT CST CDT MST MDT PST PDT GMT AP AR VR ER".split()
)
# Short English words that people shout in capitals.
COMMON_WORDS = frozenset(
    "a i an as at am be by do go he if in is it me my no of on or so to up us we ok hi oh all and any "
    "are ask bad but buy can day did due end far few for fun get got had has her him his hot how job "
    "let lot low man may men new not now off old one our out own pay put red run sad say see set she "
    "six sun ten the too top try two use via war was way who why win won yes yet you your free stop "
    "help this that with from have here call only very must what when will sale best more most open "
    "over done hold line does don't note next last then they them sure also into just keep know like "
    "live look made make need once paid read real same save sell send some take tell time wait want "
    "week were work year easy each ever back been both came come date down else area able away card "
    "case code data fax".split()
)

STATES = dict(
    AL="Alabama", AK="Alaska", AZ="Arizona", AR="Arkansas", CA="California", CO="Colorado",
    CT="Connecticut", DE="Delaware", FL="Florida", GA="Georgia", HI="Hawaii", ID="Idaho",
    IL="Illinois", IN="Indiana", IA="Iowa", KS="Kansas", KY="Kentucky", LA="Louisiana", ME="Maine",
    MD="Maryland", MA="Massachusetts", MI="Michigan", MN="Minnesota", MS="Mississippi", MO="Missouri",
    MT="Montana", NE="Nebraska", NV="Nevada", NH="New Hampshire", NJ="New Jersey", NM="New Mexico",
    NY="New York", NC="North Carolina", ND="North Dakota", OH="Ohio", OK="Oklahoma", OR="Oregon",
    PA="Pennsylvania", RI="Rhode Island", SC="South Carolina", SD="South Dakota", TN="Tennessee",
    TX="Texas", UT="Utah", VT="Vermont", VA="Virginia", WA="Washington", WV="West Virginia",
    WI="Wisconsin", WY="Wyoming", DC="D C",
)  # fmt: skip
# What stands after "Boston,"; the others may be an answer, a document or a doctor there.
STATES_AFTER_CITIES = frozenset(STATES) - {"OK", "HI", "ID", "MD"}
DIRECTIONS = {
    "N": "North",
    "S": "South",
    "E": "East",
    "W": "West",
    "NE": "Northeast",
    "NW": "Northwest",
    "SE": "Southeast",
    "SW": "Southwest",
}
UNAMBIGUOUS_STATES = frozenset(
    "AZ CA CT FL GA IL KY MN MO NC ND NE NH NJ NM NV NY SD TN TX UT VT WA WI WV WY".split()
)
