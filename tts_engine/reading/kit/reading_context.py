"""State that the words already read leave for the words that follow.

A number after "your code is" is read digit by digit, "St" after a name is a street. The state is carried from
clause to clause. The recognisers of each language set and read the fields; words of one language only are not
known here.
"""

from dataclasses import dataclass

CODE_WINDOW = 8  # words after "code" in which a number is read digit by digit
CODE_CONTINUATION_WINDOW = 2  # words after such a number in which another number is


@dataclass(slots=True)
class ReadingContext:
    """What the words already read say about the next ones."""

    code_words_left: int = 0  # words for which a number is still a code
    identifier_expected: bool = False  # after "order", "flight": a number that follows at once identifies it
    code_just_announced: bool = False  # the last word announced a code
    previous_word: str = ""  # last word as written, in lower case
    word_before_number: str = ""  # the word before the number that was read last
    counted_gender: str = ""  # of the noun that a number counted last
    previous_capitalized: bool = False  # the last word was capitalised and not the first of its sentence
    after_number: bool = False  # a number was read last, and no word or mark followed
    after_phone: bool = False  # that number was a phone number: "x" after it is "extension"
    after_code: bool = False  # that number was a code
    after_comma: bool = False  # a comma was read last
    after_colon: bool = False  # a colon was read last: "check-in: 15:00" is no time within which
    date_words_left: int = 0  # words after "6/3" in which "6/10" is a date too
    address_words_left: int = 0  # words for which "St" is a street
    line_start: bool = True  # nothing of the line was read yet
    sentence_start: bool = True  # no word of the sentence was read yet

    def note_word(self, word: str = "") -> None:
        """Note a word; "" where it cannot matter to the next one."""
        self.code_words_left = max(0, self.code_words_left - 1)
        self.previous_word = word.lower()
        self.code_just_announced = self.after_number = self.line_start = self.sentence_start = False

    def note_number(self) -> None:
        """Note a number."""
        if self.previous_word != "0":
            self.word_before_number = self.previous_word
        self.after_number, self.identifier_expected, self.previous_word = True, False, "0"
        self.after_phone = self.after_code = self.after_comma = self.after_colon = False
        self.previous_capitalized = self.line_start = self.sentence_start = False

    def end_line(self) -> None:
        """Note the start of a new line, across which no number continues."""
        self.line_start = self.sentence_start = True
        self.after_number = False

    def end_sentence(self) -> None:
        """Forget what holds for one sentence only; "Here is your code." still announces a code."""
        if not self.code_just_announced:
            self.code_words_left = 0
        self.identifier_expected = self.after_number = self.previous_capitalized = False
        self.address_words_left, self.word_before_number, self.counted_gender = 0, "", ""
        self.sentence_start = True
