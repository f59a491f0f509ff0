"""Rules of two numbers with a sign between them: "1/2", "3:1", "2 x 2", "35 x 45 mm", "10/12 minutes"."""

import re

from ...patterns import PatternBehind
from ...tokenizer import SMALL_LETTERS, RuleRow, ScanState, any_of
from ..language_table import LanguageTable
from ..number_context import TableNumberContext
from ..numbers import NumberPatterns, TableNumberWords, with_noun
from ..speller import TableSpeller
from .rates import TableRates

_NAME_BEHIND = re.compile(r"(?<!\w)[^\W\d_a-z][^\W\d_]{1,20} \Z")


class TableFractions:
    """Recognisers of fractions, ratios, scores and sizes of one language."""

    def __init__(
        self,
        table: LanguageTable,
        numbers: TableNumberWords,
        speller: TableSpeller,
        context: TableNumberContext,
        patterns: NumberPatterns,
        rates: TableRates,
    ) -> None:
        self._table, self._numbers, self._speller = table, numbers, speller
        self._context, self._patterns, self._rates = context, patterns, rates
        self._size_word = table.size_word or table.marks["×"]
        self._times_word = table.marks["×"] if table.size_units else self._size_word
        self._unit_plurals = table.unit_plurals
        self._unit_words = {form: unit for unit in table.units.values() for form in unit.forms}
        forms = {form for written in table.fractions.values() for form in written.split("|")}
        self._score_behind = PatternBehind(rf"\b(?i:{table.score_phrases}) \Z|\d ?x ?\d \(\Z")
        self._articles = frozenset(form.split()[0] for form in forms if " " in form)
        cues = any_of(table.slash_words)
        self._slash_cue = re.compile(rf"(?<!\w)((?i:{cues}))\.? [^,;.!?]{{0,40}}\Z") if cues else None

    def digit_rows(self) -> tuple[RuleRow, ...]:
        """Return the rules of two numbers with a sign between them: "1/2", "3:1", "2 x 2", "35 x 45 mm"."""
        table, end, decimal = self._table, self._patterns.end, self._patterns.decimal
        # Units of blood pressure are among them: "mmHg", "мм рт. ст."
        long_units = (
            unit
            for unit in table.units
            if (len(unit) > 3 and (unit.isascii() or " " in unit)) or unit.lower() in table.slash_nouns
        )
        long = any_of(long_units) or r"(?!)"
        return (
            (
                rf"(?P<whole>\d{{1,3}}) 1/2(?: ?(?P<unit>{self._patterns.units}){end}"
                rf"|(?: (?P<noun>{any_of(self._unit_words)}){end})?(?![/\d]){end})"
                if table.halves or table.decimal_halves
                else "(?!)",
                self._read_half,
            ),
            (
                rf"(?P<known>{any_of(table.fractions) or '(?!)'})"
                rf"(?: ?(?P<unit>{self._patterns.units}){end}|(?!/){end})",
                self._read_known_fraction,
            ),
            # A scale may be grouped: "1:50 000".
            (r"(?P<over>1):(?P<under>\d{1,3}(?:[ .]\d{3})*[ .]000)" + end, self._read_ratio),
            (r"(?P<over>\d{1,2}):(?P<under>\d{1,2}|(?<=\b1:)\d{3,5})(?![\d:])" + end, self._read_ratio),
            (
                rf"(?P<over>\d{{1,2}}) ?[x–-] ?(?P<under>\d{{1,2}})(?= [A-Z][{SMALL_LETTERS}])",
                self._read_score,
            ),
            *self._announced_score_rows(),
            *self._size_rows(),
            (rf"(?!0x){decimal}x(?=\d{{1,4}}(?![\dA-Z]))", self._read_times_of),
            (
                rf"(?P<whole>{self._patterns.integer})(?:x{end}| x(?= (?:{self._patterns.signs}) ?\d))",
                self._read_times,
            ),
            (rf"(?P<whole>\d{{1,2}}) x(?= [{SMALL_LETTERS}])", self._read_times),
            (
                r"(?P<over>\d{1,4})(?:[.,](?P<part>\d{1,2}))?/(?P<under>\d{1,4})(?:[.,](?P<under_part>\d{1,2}))?"
                rf" ?(?P<unit>{long}){end}",
                self._read_fraction_of_unit,
            ),
            (
                r"(?P<over>\d{1,3})(?:[.,](?P<part>\d))?/(?P<under>\d{1,3})(?![\d/])" + end,
                self._read_fraction,
            ),
        )

    def letter_row(self) -> RuleRow:
        """Return the rule of the "x" of a size."""
        return r"x(?= ?\d)", self._read_by

    def _announced_score_rows(self) -> tuple[RuleRow, ...]:
        """Return the rule of "venceu por 4x1"."""
        if not self._table.score_phrases:
            return ()
        end, unit = self._patterns.end, self._patterns.units
        score = rf"(?P<over>\d)(?: x |x)(?P<under>\d)(?!\w|[.,]\d| ?(?:{unit}){end})"
        return ((score, self._read_announced_score),)

    def _size_rows(self) -> tuple[RuleRow, ...]:
        """Return the rule of "60 × 40 × 30 cm"."""
        if not self._table.size_units:
            return ()
        number, by = r"\d{1,4}(?:[.,]\d{1,2})?", " ?[x×х] ?"
        rest = rf"{number}(?:{by}{number})?\s?(?:{any_of(self._table.size_units)}){self._patterns.end}"
        return ((rf"{self._patterns.decimal}{by}(?={rest})", self._read_size),)

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
        if previous in self._articles:  # "een ½ liter"
            words = words.removeprefix(f"{previous} ")
        if match["known"] != "1/2" and (match["unit"] or following in self._unit_words):
            words += " " + self._table.magnitude_joint.partition("|")[0]  # "un cuarto de litro"
        if match["unit"]:
            words += " " + self._table.noun_form(self._table.units[match["unit"]], 1, "genitive")
        scan.emit(words, *match.span())
        return self._speller.finish_number(scan, self._rates.read_per(scan, match.end()))

    def _read_half(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "2 1/2 kg", as which "2½ kg" arrives too: "zweieinhalb Kilogramm", "dos kilos y medio"."""
        whole, table = match["whole"], self._table
        noun = table.units[match["unit"]] if match["unit"] else self._unit_words.get(match["noun"])
        if not table.halves:  # as "2,5"
            counted = self._numbers.counted(whole, "5", noun) if noun else self._numbers.amount(whole, "5")
            return self._speller.emit_number(scan, counted, *match.span())
        usual, _, feminine = (table.halves.get(whole) or table.halves[""]).partition("|")
        template = feminine if feminine and noun and noun.gender == "f" else usual
        number = self._numbers.number(int(whole))
        counted = self._numbers.counted(whole, None, noun) if noun else number
        words = template.format(number, counted=counted)
        if noun and "{counted}" not in template:
            words = with_noun(words, table.noun_form_after_fraction(noun, int(whole)))
        return self._speller.emit_number(scan, words, *match.span())

    def _read_ratio(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "3:1" of a score, and a scale."""
        table = self._table
        joint = table.ratio_words.get(scan.context.previous_word, table.ratio_word)
        if not joint:
            return None
        over = self._numbers.amount(match["over"], None)
        digits = re.sub(r"\D", "", match["under"])
        under = self._numbers.amount(digits, None, "", table.case_after(joint))
        return self._speller.emit_number(scan, f"{over} {joint} {under}", *match.span())

    def _read_announced_score(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "4x1" of "venceu por 4x1" and the "2x0" after it in brackets."""
        if not self._score_behind.search(scan.view, match.start()):
            return None
        return self._emit_score(scan, match)

    def _read_score(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """Read the "2 x 2" between the names of two teams."""
        is_after_name = _NAME_BEHIND.search(scan.view, max(0, match.start() - 24), match.start())
        is_code = (len(match["over"]) > 1 and match["over"][0] == "0") or scan.context.code_words_left
        if not self._table.score_joint or not is_after_name or is_code:
            return None
        return self._emit_score(scan, match)

    def _emit_score(self, scan: ScanState, match: re.Match[str]) -> int:
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
        return self._speller.finish_number(scan, self._rates.read_per(scan, match.end()))

    def _read_fraction(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read "3/8" and "4,5/5"; "10/12 minutes" is a range."""
        if self._is_slash_range(scan, match):
            return self._read_slash_range(scan, match)
        over = self._numbers.amount(match["over"], match["part"])
        joint = self._slash_word(scan, match)
        under = self._numbers.amount(match["under"], None, "", self._table.case_after(joint))
        words = f"{over} {joint} {under}"
        parts = self._table.fraction_parts.get(match["under"])
        is_part = parts and not match["part"] and int(match["over"]) < int(match["under"])
        if parts and is_part and scan.next_word(match.end()) in self._table.partitives:  # "2/5 de los votos"
            one, _, many = parts.partition("|")
            number = self._numbers.number(int(match["over"]), "m")
            words = f"{number} {one if match['over'] == '1' else many}"
        if self._table.particles:  # Korean names the lower number first
            words = f"{under}{self._table.fraction_word} {over}"
        if scan.context.previous_word in self._table.slash_cues:
            words = f"{over} {under}"
        return self._speller.emit_number(scan, words, *match.span())

    def _read_fraction_of_unit(self, scan: ScanState, match: re.Match[str]) -> int:
        """Read the blood pressure "120/80 mmHg", and the "14,2/16 GB" of a memory."""
        table, unit = self._table, match["unit"]
        is_plain = table.particles or scan.context.previous_word in table.slash_cues
        joint = table.slash_nouns.get(unit.lower().rstrip(".")) or self._slash_word(scan, match)
        joint = "" if is_plain else joint
        over = self._numbers.amount(match["over"], match["part"])
        case = table.case_after(joint)
        under = self._numbers.counted(match["under"], match["under_part"], table.units[unit], case)
        return self._speller.emit_number(scan, f"{over} {joint} {under}", *match.span())

    def _slash_word(self, scan: ScanState, match: re.Match[str]) -> str:
        at, table = match.start(), self._table
        word = table.slash_word(scan.context.previous_word, scan.next_word(match.end()))
        cue = self._slash_cue.search(scan.view, max(0, at - 50), at) if self._slash_cue else None
        return word or (table.slash_words[cue.group(1).lower()] if cue else table.fraction_word)

    def _is_slash_range(self, scan: ScanState, match: re.Match[str]) -> bool:
        """Whether a counted noun or a unit follows two numbers that are near each other."""
        noun, low, high = scan.next_word(match.end()), int(match["over"]), int(match["under"])
        is_counted = noun in self._unit_plurals or (len(noun) > 1 and noun in self._table.units)
        is_counted = is_counted and not self._table.slash_word("", noun)
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
