"""Rules of amounts in a language that a table describes: numbers, ranges, percent, money, units."""

import re

from ...lazy_pattern import LazyPattern
from ...tokenizer import SMALL_LETTERS, RuleRow, ScanState, any_of
from ..languages.language_tables import LanguageTable
from ..languages.plural_rules import CountedNoun
from .codes import TableCodes
from .number_context import TableNumberContext
from .numbers import TableNumberWords, with_noun
from .ordinals import TableOrdinals
from .roman import TableRomanNumerals
from .speller import TableSpeller

_CODE_OF_CURRENCY = re.compile(r"[A-Z]{3}\Z|[A-Z][a-z]+\.\Z")  # may be written before an amount: "EUR 20"
_MIN_LARGE_AMOUNT = 10_000  # from which "$" is no dollar in some languages
_NAME_BEHIND = re.compile(r"(?<!\w)[^\W\d_a-z][^\W\d_]{1,20} \Z")
_MIN_CODE_DIGITS = 5  # of a code before a noun, which a shorter number counts
_SEPARATOR = re.compile(r"[\dA-Z€%)] - \Z")  # no minus: "12/A - 20121 Milano"
_COUNTED_NOUN_BEHIND = re.compile(r"\d(?: [^\W\d_]{2,20}| ?%)?\Z")


class TableAmounts:
    """Recognisers of amounts of one language."""

    def __init__(
        self, table: LanguageTable, numbers: TableNumberWords, speller: TableSpeller, codes: TableCodes
    ) -> None:
        self._table, self._numbers, self._speller, self._codes = table, numbers, speller, codes
        self._context = TableNumberContext(table, numbers)
        self._ordinals = TableOrdinals(table, numbers, speller, self._context)
        self._romans = TableRomanNumerals(table, numbers, speller)
        group = f"[{re.escape(table.thousands_separators)}]"
        self.integer = rf"(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?!\d)"
        self._integer_ahead = LazyPattern(self.integer)
        decimal_mark = r"\." if "," in table.thousands_separators else "[.,]"
        # "12,845.60" can be read in one way only, whatever the language.
        foreign = r"\d{1,3}(?:,\d{3})+(?=\.\d\d(?!\d))|" if decimal_mark != r"\." else ""
        self._decimal_mark = decimal_mark
        self._decimal = rf"(?P<whole>{foreign}{self.integer})(?:{decimal_mark}(?P<fraction>\d+))?"
        self._end = table.end
        self._unit_end = self._end if table.suffix_mark else rf"{self._end}(?!'\w)"  # "2025 s'élève"
        # "2 배송" is no "2배": after a blank, a noun is followed by a particle or by no letter.
        particles = rf"(?=[!-~]|(?:{any_of(table.units)})(?:[{table.particle_letters}]|(?!\w)))"
        self._unit_gap = rf"(?:|\s{particles})" if table.particle_letters else r"\s?"
        self._signs = any_of(sign for sign in table.money if not sign[-1].isalpha()) or r"(?!)"
        self._codes_before = any_of(filter(_CODE_OF_CURRENCY.match, table.money)) or r"(?!)"
        self._magnitudes = any_of(table.magnitudes) or r"(?!)"
        self._units = any_of(table.units)
        self._size_word = table.size_word or table.marks["×"]
        self._times_word = table.marks["×"] if table.size_units else self._size_word
        self._counted = LazyPattern(rf"{self.integer}(?:\s?(?P<unit>{self._units}){self._unit_end})?")
        sums = any_of((*table.money, *table.units, "%"))
        self._amount_ahead = LazyPattern(rf"(?:{self._signs}) ?\d|{self._decimal}\s?(?:{sums})(?!\w)")
        years = any_of(suffix for suffix in table.ordinal_suffixes if suffix[0] == " ") or "(?!)"
        joints = any_of(table.day_joints) or "(?!)"
        self._year_joint = LazyPattern(rf" (?P<joint>{joints}) \d{{4}}(?P<suffix>{years})(?!\w)")
        self._years_ahead = LazyPattern(rf"\d{{4}}(?P<suffix>{years})(?!\w)")
        self._street_behind = LazyPattern(rf"(?:{table.street_endings or '(?!)'}) \Z")
        self._unit_plurals = table.unit_plurals
        self._signed_nouns = any_of({signed[1:] for signed in table.signed_nouns}) or "(?!)"
        cues = any_of(table.slash_words)
        self._slash_cue = re.compile(rf"(?<!\w)((?i:{cues}))\.? [^,;.!?]{{0,40}}\Z") if cues else None
        self._number_ahead = LazyPattern(
            rf"\.? ?\d+(?![\d:]|[.,]\d|\s?(?:{self._units}|{any_of(table.money)}){self._end})"
        )
        self._per = LazyPattern(
            rf" ?/ ?(?:(?P<known>{any_of(table.per) or '(?!)'})(?!\w)"
            rf"|(?P<size>\d{{1,3}}) ?(?P<of>{self._units}){self._end}|(?P<unit>{self._units}){self._end}"
            r"|(?P<word>[^\W\d_]{1,20}\b)|(?P<number>\d{1,3}(?!\d)))"
        )

    def sign_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of amounts that begin with a sign."""
        ends = self._table.range_ends
        return (
            *self.money_rows(),
            (rf"% ?{self._decimal}", self._read_percent_sign),
            (
                rf"(?P<sign>[-−+]) ?(?:[^\W\d_]{{2}} )?(?=\d{{1,3}} (?P<noun>{self._signed_nouns})(?!\w))",
                self._read_sign_of_noun,
            ),
            (rf"[-−](?= ?(?:{self._signs})? ?\d)(?! \d{{5}} [A-Z])", self._read_minus),
            *([(r"[~≈] ?(?=[\d-])", self._read_about)] if self._table.about_word else []),
            *(
                [(rf"(?: ~ |(?<=[\d.)%{ends}])~)(?=[^\W\d_]{{0,3}} ?[₩$€]?\d)", self._read_range_sign)]
                if ends
                else []
            ),
            (rf"/(?:{any_of(self._table.per_nouns | {'7'})})(?!\w)", self._read_slash),
        )

    def money_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of money that begins with a currency."""
        currency = rf"(?P<currency>{self._signs}|(?:{self._codes_before})(?= ?\d))"
        amount = rf"(?=[^\d ]{{1,4}}\s?\d){currency}\s?{self._decimal}"
        names = any_of(name for name in self._table.money if name[0].isalpha())
        low = rf"(?P<low_currency>{self._signs})\s?(?P<low>{self.integer})"
        low += rf"(?:{self._decimal_mark}(?P<low_fraction>\d\d))?"
        low += rf"(?:[-–]| ?[-–] ?(?={self._signs}))(?:(?:{self._signs})\s?)?"
        return (
            (rf"{amount}\s?(?P<name>{names or '(?!)'}){self._end}", self._read_named_money),
            (rf"{amount}\s(?P<magnitude>{self._magnitudes}){self._end}", self._read_large_money),
            (rf"{low}{self._decimal}(?!\d|\s(?:{self._magnitudes}))", self._read_money_range),
            (rf"{amount}(?:[,.][-–]{{1,2}}(?!\d))?", self._read_money),
        )

    def money_letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of money that begins with a letter, which is mostly a capital."""
        letters = {sign[0] for sign in self._table.money if not sign[-1].isalpha() and sign[0].isalpha()}
        begin = "(?=[A-Z])" if all("A" <= letter <= "Z" for letter in letters) else ""
        return tuple((begin + pattern, recognizer) for pattern, recognizer in self.money_rows())

    def letter_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of the "x" of a size, of units without a number, and of Roman numerals."""
        cues = any_of(self._table.per_cues)
        rates = rf"(?P<cue>(?i:{cues})) (?P<unit>{self._units}){self._end}" if cues else "(?!)"
        return ((r"x(?= ?\d)", self._read_by), (rates, self._read_rate), *self._romans.rows())

    def number_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of amounts that begin with a digit."""
        table, end, decimal = self._table, self._end, self._decimal
        suffixes = any_of(table.ordinal_suffixes) or r"(?!)"
        large = rf"{decimal}\s?(?P<magnitude>{self._magnitudes})"
        return (
            *self._fraction_rows(),
            (
                rf"{decimal}\s?%(?!\d){'(?![pP](?![A-Za-z]))' if '%p' in table.units else ''}",
                self._read_percent,
            ),
            *self._money_rows(large),
            (rf"{large}\s(?P<unit>{self._units}){end}", self._read_large_unit),
            (rf"{large}{end}", self._read_magnitude),
            (rf"(?P<whole>{self.integer})(?P<suffix>{suffixes})(?!\w)", self._ordinals.read_suffixed),
            (
                rf"(?P<low>{self.integer})(?:{self._decimal_mark}(?P<low_fraction>\d+))?(?P<dash> ?[-–~] ?)"
                rf"{decimal}{self._unit_gap}(?P<unit>{self._units}){self._unit_end}",
                self._read_unit_range,
            ),
            (rf"{decimal}{self._unit_gap}(?P<unit>{self._units}){self._unit_end}", self._read_unit),
            (rf"(?P<number>\d{{1,3}})\.(?=[ {table.suffix_mark}][^\W\d_])", self._ordinals.read_stop),
            self._codes.mixed_row(),
            (rf"{decimal}(?P<dash> ?[-–~] ?)(?=\d)", self._read_range),
            (decimal, self._read_number),
        )

    def _fraction_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of two numbers with a sign between them: "1/2", "3:1", "2 x 2", "35 x 45 mm"."""
        table, end, decimal = self._table, self._end, self._decimal
        # Units of blood pressure are among them: "mmHg", "мм рт. ст."
        long_units = (unit for unit in table.units if len(unit) > 3 and (unit.isascii() or " " in unit))
        long = any_of(long_units) or r"(?!)"
        return (
            (
                rf"(?P<whole>\d{{1,3}}) 1/2(?: ?(?P<unit>{self._units}){end}|(?![/\d]){end})"
                if table.halves
                else "(?!)",
                self._read_half,
            ),
            (
                rf"(?P<known>{any_of(table.fractions) or '(?!)'})"
                rf"(?: ?(?P<unit>{self._units}){end}|(?!/){end})",
                self._read_known_fraction,
            ),
            (r"(?P<over>\d{1,2}):(?P<under>\d{1,2}|(?<=\b1:)\d{3,5})(?![\d:])" + end, self._read_ratio),
            (r"(?P<over>\d{1,2}) ?[x–-] ?(?P<under>\d{1,2})(?= [A-Z][a-zà-ÿ])", self._read_score),
            *self._size_rows(),
            (rf"(?!0x){decimal}x(?=\d{{1,4}}(?![\dA-Z]))", self._read_times_of),
            (
                rf"(?P<whole>{self.integer})(?:x{end}| x(?= (?:{self._signs}) ?\d))",
                self._read_times,
            ),
            (rf"(?P<whole>\d{{1,2}}) x(?= [{SMALL_LETTERS}])", self._read_times),
            (
                r"(?P<over>\d{1,3})(?:[.,](?P<part>\d))?/(?P<under>\d{1,3})(?![\d/])"
                rf"(?: ?(?P<unit>{long}){end}|{end})",
                self._read_fraction,
            ),
        )

    def _money_rows(self, large: str) -> tuple[RuleRow, ...]:
        """Return the rules of amounts of money, and of the units that begin as a currency does.

        large: the pattern of "2,5 Mio.".
        """
        table, end, decimal, mark = self._table, self._end, self._decimal, self._decimal_mark
        money = f"(?P<currency>{any_of(table.money)}){end}"
        # "3 р./день"; a larger number counts money.
        rates = any_of(
            unit for unit in table.units if unit.startswith(tuple(table.money)) and {*unit} & {"/", " "}
        )
        joints = any_of({table.range_word, *table.case_joints, *table.day_joints} - {""}) or "(?!)"
        return (
            (
                rf"(?P<whole>\d{{1,4}})(?P<sign>{self._signs}|m)(?P<fraction>\d\d){end}",
                self._read_inserted_unit,
            ),
            (rf"(?P<whole>\d)(?P<fraction>(?!))?\s?(?P<unit>{rates or '(?!)'}){end}", self._read_unit),
            (
                rf"(?P<whole>{self.integer}){mark}(?P<fraction>\d\d)(?P<joint> (?:{joints}) | ?[-–] ?)"
                rf"(?={self.integer}(?:{mark}\d\d)?\s?{money})",
                self._read_first_money,
            ),
            (rf"{large}\s?{money}", self._read_large_money),
            (rf"{decimal}(?:[,.][-–]{{1,2}})?\s?{money}", self._read_money),
        )

    def _size_rows(self) -> tuple[RuleRow, ...]:
        """Return the rule of "60 × 40 × 30 cm"."""
        if not self._table.size_units:
            return ()
        number, by = r"\d{1,4}(?:[.,]\d{1,2})?", " ?[x×х] ?"
        rest = rf"{number}(?:{by}{number})?\s?(?:{any_of(self._table.size_units)}){self._end}"
        return ((rf"{self._decimal}{by}(?={rest})", self._read_size),)

    # Rates

    def _read_per(self, scan: ScanState, at: int) -> int:
        """Read the "/Monat" after a price or a unit, and return where it ends."""
        table, match = self._table, self._per.match(scan.view, at)
        if match is None:
            return at
        known = match["known"] or (match["word"] or "").lower()
        if known in table.per:
            words = table.per[known]
        elif match["number"]:
            words = f"{table.fraction_word} {self._numbers.number(int(match['number']))}"
        elif match["of"]:
            words = f"{table.per_word} {self._numbers.counted(match['size'], None, table.units[match['of']])}"
        elif match["unit"]:
            words = f"{table.per_word} {with_noun('', table.noun_form(table.units[match['unit']], 1))}"
        else:
            words = f"{table.per_word} {match['word']}"
        scan.emit(words, at, match.end())
        return match.end()

    def _read_rate(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "per kWh"."""
        if match.start() and scan.view[match.start() - 1].isalnum():
            return None
        scan.emit(match["cue"], *match.span("cue"))
        scan.emit(self._table.units[match["unit"]].forms[0], *match.span("unit"))
        scan.context.note_word(scan.words[-1].text)
        if match.group()[-1] == "." and not scan.next_visible(match.end()):
            scan.punctuate(".")
        return match.end()

    # Numbers

    def _read_number(self, scan: ScanState, match: re.Match[str]) -> int:
        whole, fraction = match["whole"], match["fraction"]
        is_code = whole.isdigit() and not fraction and self._codes.is_code(scan, whole)
        if is_code and not self._is_counted(scan, match):
            return self._speller.read_digits(scan, match)
        previous = scan.context.previous_word
        phrase = f"{scan.words[-2].text.lower()}_{previous}" if len(scan.words) > 1 else ""
        rules = self._table.years_after.get(phrase) or self._table.years_after.get(previous)
        years = self._year_joint.match(scan.view, match.end()) if len(whole) == 4 else None
        if years:
            is_one_case = years["joint"] in self._table.case_joints
            rules = (
                self._ordinals.rules_of_suffix(scan, match, years) if is_one_case else self._table.year_rules
            )
        if rules and whole.isdigit() and len(whole) == 4:
            return self._speller.emit_number(scan, self._numbers.spell_out(int(whole), rules), *match.span())
        number = self._numbers.value(whole)
        governor = self._table.governor(previous, scan.view[: match.start()])
        decade = self._table.ordinal_rules.get(governor, "")
        is_decade = len(whole) == 2 and whole[1] == "0" and scan.view.startswith(".", match.end())
        if is_decade and not fraction and decade.startswith("plural"):  # "w latach 90."
            return self._speller.emit_number(scan, self._numbers.spell_out(number, decade), *match.span())
        ordinal = self._bare_ordinal(previous, scan.next_word(match.end())) if not fraction else None
        if ordinal and number > 1 and scan.view[match.end() : match.end() + 1] == " ":
            return self._speller.emit_number(scan, self._numbers.spell_out(number, ordinal), *match.span())
        case = self._context.case_by_noun(scan, match, number)
        gender = self._context.gender_of_noun_before(scan, match.end())
        one = ""
        if gender is None:
            gender = self._context.gender_of_counted(scan, match.end(), number, case)
            if fraction:
                gender = self._context.gender_of_noun(scan, match.end(), 1, "genitive")
            is_one = whole == "1" and not fraction
            one = self._numbers.one(gender, scan.next_word(match.end())) if is_one else ""
        words = one or self._numbers.year_or_amount(whole, fraction, gender, case)
        return self._speller.emit_number(scan, words, *match.span())

    def _is_counted(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether a known noun follows a short number: "une réservation pour 120 personnes"."""
        is_short = len(match["whole"]) < _MIN_CODE_DIGITS and match["whole"][0] != "0"
        noun = scan.next_word(match.end())
        return is_short and (noun in self._table.genders or noun in self._unit_plurals)

    def _bare_ordinal(self, previous: str, noun: str) -> str | None:
        """Return the rule set of an ordinal without a sign between two words, or None for a cardinal."""
        ordinals = self._table.bare_ordinals
        return ordinals.get(f"{previous}_{noun}") or ordinals.get(noun)

    def _read_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the first number of "3-5" and the dash."""
        if self._codes.is_code(scan, match["whole"]):
            return None
        gender = self._gender_after_range(scan, match) if self._table.few_gender_by_ending else ""
        words = self._numbers.year_or_amount(
            match["whole"], match["fraction"], gender, self._context.case(scan, match)
        )
        years = self._years_ahead.match(scan.view, match.end()) if len(match["whole"]) == 4 else None
        previous = scan.context.previous_word
        if years:
            rules = self._ordinals.rules_of_suffix(scan, match, years)
            words = self._numbers.spell_out(int(match["whole"]), rules)
        scan.emit(words, match.start(), match.start("dash"))
        second = self._integer_ahead.match(scan.view, match.end())
        falls = second and self._numbers.value(second.group()) < self._numbers.value(match["whole"])
        falls = falls or scan.context.previous_word in self._table.address_number_words
        joint = "" if falls else self._table.range_word  # "221-18" is the number of an article
        if second and self._is_house_number(scan, match.start(), second.end()):
            joint = self._table.address_joint
        scan.emit(joint, match.start("dash"), match.end())
        is_pair_of_years = second is not None and len(match["whole"]) == len(second.group()) == 4
        scan.context.previous_word = "" if is_pair_of_years else joint or previous
        if years:
            scan.context.previous_word = previous
        return match.end()

    def _gender_after_range(self, scan: ScanState, match: re.Match[str]) -> str:
        """Return the gender of what "1-2 minuty" counts."""
        second = self._counted.match(scan.view, match.end())
        if second is None:
            return ""
        unit = self._table.units.get(second["unit"] or "")
        return unit.gender if unit else self._context.gender_of_noun(scan, second.end(), 2)

    def _is_house_number(self, scan: ScanState, start: int, stop: int) -> bool:
        """Whether two numbers with a hyphen stand after the name of a street, and no noun follows at once."""
        is_after_street = self._street_behind.compiled.search(scan.view, max(0, start - 8), start)
        following = scan.view[stop : stop + 1]
        is_noun = following.isalpha() and following not in self._table.particle_letters
        return is_after_street is not None and not is_noun

    def _read_known_fraction(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "1/2", and "1/2 kg" with its unit; "2/3 jours" is a range, and "klas 2/3" are two."""
        previous, following = scan.context.previous_word, scan.next_word(match.end())
        if previous in self._table.slash_cues or self._table.slash_word(previous, following):
            return None
        if following in self._unit_plurals and match["known"][0] in "23":
            return self._read_slash_range(scan, match)
        forms = self._table.fractions[match["known"]].split("|")
        unit = self._table.units[match["unit"]].gender if match["unit"] else ""
        head, _, rest = match["known"].partition(" ")  # which may be a noun: "1/2 hora"
        noun_at = match.start() + len(head) if rest[-1:].isalpha() else match.end()
        gender = unit or self._context.gender_of_counted(scan, noun_at, 1)
        words = dict(zip(("", "f", "n"), forms, strict=False)).get(gender, forms[0])
        words = self._table.inflected(words, previous)
        if match["unit"]:
            words += " " + self._table.noun_form(self._table.units[match["unit"]], 1, "genitive")
        scan.emit(words, *match.span())
        return self._speller.finish_number(scan, self._read_per(scan, match.end()))

    def _read_half(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "2 1/2 kg", as which "2½ kg" arrives too."""
        whole = match["whole"]
        template = self._table.halves.get(whole) or self._table.halves[""]
        words = template.format(self._numbers.number(int(whole)))
        if match["unit"]:
            unit = self._table.noun_form_after_fraction(self._table.units[match["unit"]], int(whole))
            words = with_noun(words, unit)
        return self._speller.emit_number(scan, words, *match.span())

    def _read_ratio(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3:1" of a score."""
        table = self._table
        joint = table.ratio_words.get(scan.context.previous_word, table.ratio_word)
        if not joint:
            return None
        over = self._numbers.amount(match["over"], None)
        under = self._numbers.amount(match["under"], None, "", table.case_after(joint))
        return self._speller.emit_number(scan, f"{over} {joint} {under}", *match.span())

    def _read_score(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "2 x 2" between the names of two teams."""
        is_after_name = _NAME_BEHIND.search(scan.view, max(0, match.start() - 24), match.start())
        is_code = (len(match["over"]) > 1 and match["over"][0] == "0") or scan.context.code_words_left
        if not self._table.score_joint or not is_after_name or is_code:
            return None
        over, under = self._numbers.amount(match["over"], None), self._numbers.amount(match["under"], None)
        return self._speller.emit_number(scan, f"{over} {self._table.score_joint} {under}", *match.span())

    def _read_size(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "35x" of "35x45 mm"."""
        amount = self._numbers.amount(match["whole"], match["fraction"])
        return self._speller.emit_number(scan, f"{amount} {self._size_word}", *match.span())

    def _read_times_of(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "3x" of "3x200 g", which is a size in some languages."""
        amount = self._numbers.amount(match["whole"], match["fraction"])
        return self._speller.emit_number(scan, f"{amount} {self._times_word}", *match.span())

    def _read_by(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "x" of "35 x 45 mm"."""
        is_apart = scan.view[match.start() - 1 : match.end() + 1] == " x "
        if not (scan.context.after_number or is_apart):
            return None
        return self._speller.emit_number(scan, self._times_word, *match.span())

    def _read_times(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "3x" as "drei mal"."""
        if self._table.times is None:
            return None
        words = self._numbers.counted(
            match["whole"], None, self._table.times, self._context.case(scan, match)
        )
        scan.emit(words, *match.span())
        return self._speller.finish_number(scan, self._read_per(scan, match.end()))

    def _read_slash(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "/jour" of "3 fois/jour", and "7 jours/7"."""
        is_counted = _COUNTED_NOUN_BEHIND.search(scan.view, max(0, match.start() - 24), match.start())
        return self._read_per(scan, match.start()) if is_counted else None

    def _read_fraction(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "3/8" and "4,5/5"; "10/12 minutes" is a range."""
        if not match["unit"] and self._is_slash_range(scan, match):
            return self._read_slash_range(scan, match)
        over = self._numbers.amount(match["over"], match["part"])
        under = self._numbers.amount(match["under"], None)
        words = f"{over} {self._slash_word(scan, match)} {under}"
        if self._table.particles:  # Korean names the lower number first
            words = f"{under}{self._table.fraction_word} {over}"
        if scan.context.previous_word in self._table.slash_cues or (match["unit"] and self._table.particles):
            words = f"{over} {under}"
        if match["unit"]:  # of blood pressure: "120/80 mmHg"
            noun = self._table.units[match["unit"]]
            words = with_noun(words, self._table.noun_form(noun, int(match["under"])))
        return self._speller.emit_number(scan, words, *match.span())

    def _slash_word(self, scan: ScanState, match: re.Match[str]) -> str:
        at, table = match.start(), self._table
        word = table.slash_word(scan.context.previous_word, scan.next_word(match.end()))
        cue = self._slash_cue.search(scan.view, max(0, at - 50), at) if self._slash_cue else None
        return word or (table.slash_words[cue.group(1).lower()] if cue else table.fraction_word)

    def _is_slash_range(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether a counted noun or a unit follows two numbers that are near each other."""
        noun, low, high = scan.next_word(match.end()), int(match["over"]), int(match["under"])
        is_counted = noun in self._unit_plurals or (len(noun) > 1 and noun in self._table.units)
        return is_counted and not match["part"] and low < high <= 2 * low

    def _read_slash_range(self, scan: ScanState, match: re.Match[str]) -> int:
        low, high = (self._numbers.amount(each, None) for each in match.group().split("/"))
        scan.emit(f"{low} {self._table.range_word} {high}", *match.span())
        unit, stop = scan.next_word(match.end()), match.end()
        if unit in self._table.units:
            start = scan.view.index(unit, stop)
            stop = start + len(unit) + scan.view.startswith(".", start + len(unit))
            scan.emit(self._table.noun_form(self._table.units[unit], 2), start, stop)
        return self._speller.finish_number(scan, stop)

    def _read_minus(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if match.start() and not scan.view[match.start() - 1].isspace():
            return None
        if _SEPARATOR.search(scan.view, max(0, match.start() - 2), match.end() + 1):
            return None
        is_code = scan.context.previous_word in self._table.code_words
        if is_code and not self._amount_ahead.match(scan.view, match.end()):
            return match.end()
        scan.emit(self._table.minus_word, match.start(), match.end())
        return match.end()

    def _read_sign_of_noun(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the sign of "-26 ans" and "+65 ans"."""
        words = self._table.signed_nouns.get(f"{match['sign']}{match['noun']}".replace("−", "-"))
        if words is None or (match.start() and scan.view[match.start() - 1].isalnum()):
            return None
        scan.emit(words, *match.span())
        return match.end()

    def _read_about(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the sign of "~12"."""
        scan.emit(self._table.about_word, *match.span())
        return match.end()

    def _read_range_sign(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the sign of "3월 2일~3월 15일"."""
        scan.emit(self._table.range_word, *match.span())
        return match.end()

    # Amounts with a noun

    def _read_percent(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if self._table.percent_prefix:
            return self._read_percent_sign(scan, match)
        rules, _, noun = self._table.percent_after.get(scan.context.previous_word, "").partition(": ")
        number = self._numbers.value(match["whole"])
        if noun and not match["fraction"] and number != 1:
            words = f"{self._numbers.spell_out(number, rules)} {noun}"
            return self._speller.emit_number(scan, words, *match.span())
        words = self._numbers.counted(
            match["whole"], match["fraction"], self._table.percent, self._context.case(scan, match)
        )
        return self._speller.emit_number(scan, words, *match.span())

    def _read_percent_sign(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "%20", as Turkish writes it."""
        if not self._table.percent_prefix:
            return None
        amount = self._numbers.amount(match["whole"], match["fraction"])
        return self._speller.emit_number(scan, f"{self._table.percent_prefix} {amount}", *match.span())

    def _read_named_money(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "$95 pesos" and "$12,845.60 MXN", whose sign is not said."""
        return self._read_money_of(scan, match, match["name"])

    def _read_money(self, scan: ScanState, match: re.Match[str]) -> int:
        return self._read_money_of(scan, match, match["currency"])

    def _read_money_of(self, scan: ScanState, match: re.Match[str], currency: str) -> int:
        whole, fraction = match["whole"], match["fraction"]
        if currency in self._table.comma_thousands and fraction and len(fraction) == 3:
            whole, fraction = whole + fraction, None
        if self._numbers.value(whole) >= _MIN_LARGE_AMOUNT:
            currency = self._table.large_amounts.get(currency, currency)
        words = self._numbers.money(whole, fraction, currency, self._context.case(scan, match))
        scan.emit(words, *match.span())
        return self._speller.finish_number(scan, self._read_per(scan, match.end()))

    def _read_money_range(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "€ 10-15" or "€ 10 - € 15"."""
        unit, _ = self._table.money[match["low_currency"]]
        words = self._numbers.amount(
            match["low"], match["low_fraction"], unit.gender, self._context.case(scan, match)
        )
        scan.emit(words, match.start(), match.end("low"))
        scan.emit(self._table.range_word, match.end("low"), match.start("whole"))
        money = self._numbers.money(match["whole"], match["fraction"], match["low_currency"])
        scan.emit(money, match.start("whole"), match.end())
        return self._speller.finish_number(scan, self._read_per(scan, match.end()))

    def _read_first_money(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the "19,99 do" of "od 19,99 do 49,99 zł"."""
        table, case = self._table, self._context.case(scan, match)
        money = self._numbers.money(match["whole"], match["fraction"], match["currency"], case)
        scan.emit(money, match.start(), match.end("fraction"))
        joint = match["joint"].strip()
        joint = table.range_word if joint in "-–" else joint
        scan.emit(joint, *match.span("joint"))
        if joint not in table.case_joints:
            scan.context.previous_word = joint
        return match.end()

    def _read_inserted_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "12€50" and "1m75"."""
        sign = match["sign"]
        if sign in self._table.money:
            return self._speller.emit_number(
                scan, self._numbers.money(match["whole"], match["fraction"], sign), *match.span()
            )
        if sign not in self._table.units or len(match["whole"]) > 1:
            return None
        words = self._numbers.counted(match["whole"], None, self._table.units[sign])
        return self._speller.emit_number(
            scan, f"{words} {self._numbers.number(int(match['fraction']))}", *match.span()
        )

    def _read_large_money(self, scan: ScanState, match: re.Match[str]) -> int:
        return self._read_large(scan, match, self._table.money[match["currency"]][0])

    def _read_large_unit(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "15 mil km"."""
        return self._read_large(scan, match, self._table.units[match["unit"]])

    def _read_large(self, scan: ScanState, match: re.Match[str], unit: CountedNoun) -> int:
        words = self._numbers.large_amount(
            match["whole"], match["fraction"], match["magnitude"], unit, self._context.case(scan, match)
        )
        return self._speller.emit_number(scan, words, *match.span())

    def _read_magnitude(self, scan: ScanState, match: re.Match[str]) -> int:
        noun = self._table.magnitudes[match["magnitude"]]
        words = self._numbers.counted(
            match["whole"], match["fraction"], noun, self._context.case(scan, match)
        )
        return self._speller.emit_number(scan, words, *match.span())

    def _read_unit(self, scan: ScanState, match: re.Match[str]) -> int | None:
        prefix = self._table.ordinal_prefix
        if prefix and scan.view.endswith(prefix, 0, match.start()):
            return None
        # "§ 7 ust. 2 pkt 3" and "5 m. 3" have the abbreviation of a word before a number.
        is_word = match["unit"].removesuffix(".") in self._table.numbered_words
        if is_word and self._number_ahead.match(scan.view, match.end()):
            return None
        # "№ 104В" has a letter.
        is_joined = match.group()[-2].isdigit() and match["unit"].isupper()
        is_lettered = scan.context.previous_word in self._table.lettered_words
        if is_joined and (is_lettered or scan.context.code_words_left):
            return None
        noun = self._table.units[match["unit"]]
        words = self._numbers.counted(
            match["whole"], match["fraction"], noun, self._context.case(scan, match)
        )
        scan.emit(words, *match.span())
        scan.context.counted_gender = noun.gender
        end = self._speller.finish_number(scan, self._read_per(scan, match.end()))
        self._codes.note_announcement(scan, noun.forms[0])
        return end

    def _read_unit_range(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read "2~3명" with its unit twice, and "90-110 km/sa", whose unit is around the numbers."""
        noun, table = self._table.units[match["unit"]], self._table
        falls = self._numbers.value(match["low"]) >= self._numbers.value(match["whole"])
        if falls and "~" not in match["dash"]:
            return None
        if len(match["low"]) > 2 and self._codes.is_code(scan, match["low"]):
            return None
        if " {}" in noun.forms[-1]:
            numbers = self._numbers.amount(match["low"], match["low_fraction"], noun.gender), table.range_word
            high = self._numbers.amount(match["whole"], match["fraction"], noun.gender)
            scan.emit(with_noun(" ".join((*numbers, high)), noun.forms[-1]), *match.span())
        elif table.repeats_units and not noun.forms[-1].startswith("{}"):
            low = self._numbers.counted(match["low"], match["low_fraction"], noun)
            scan.emit(f"{low} {table.range_word}", match.start(), match.end("dash"))
            high = self._numbers.counted(match["whole"], match["fraction"], noun)
            scan.emit(high, match.end("dash"), match.end())
        else:
            return None
        return self._speller.finish_number(scan, self._read_per(scan, match.end()))
