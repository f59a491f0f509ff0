"""Normalisation of English text: the spoken words and their punctuation."""

import pytest

from vivavoce.tts_engine.reading.languages.en import vocabulary
from vivavoce.tts_engine.reading.languages.en.rules import normalize

LETTERS = {name: letter for letter, name in vocabulary.LETTER_NAMES.items()}


def spoken(text: str, context: str = "") -> str:
    """Return the spoken words, with the names of letters as capitals."""
    words = normalize(text, context=context)
    return " ".join(LETTERS.get(word.text, word.text) + word.punctuation for word in words)


def rows(table: str) -> pytest.MarkDecorator:
    """Parametrize a test with rows "written -> spoken"."""
    split = [line.strip().split(" -> ") for line in table.strip().splitlines()]
    return pytest.mark.parametrize(
        ("written", "expected"), [(written, expected) for written, expected in split]
    )


@rows("""
    Your PIN is 0417. -> Your pin is zero four one seven.
    Your passcode is 093 481. -> Your passcode is zero nine three, four eight one.
    Your order number is 48213. -> Your order number is four eight two one three.
    order #: 12-34 -> order number: one two, three four
    order number: 48213 -> order number: four eight two one three
    account ending in 4821 -> account ending in four eight two one
    The last four digits are 0042. -> The last four digits are zero zero four two.
    Code AB-1234-X is yours. -> Code A B, one two three four, X is yours.
    Confirmation X7K2P9. -> Confirmation X seven, K two, P nine.
    Order #A1B2C3 -> Order number A one, B two, C three
    ticket INC0012345 -> ticket I N C, zero zero one, two three four five
    Here is your confirmation code:\t4821-99 -> Here is your confirmation code: four eight two one, nine nine
    Your code: ABCD-EFGH. -> Your code: A B C D, E F G H.
    card 4111 1111 1111 1111 -> card four one one one, one one one one, one one one one, one one one one
    SSN 123-45-6789 -> S S N one two three, four five, six seven eight nine
    flight UA 237 -> flight U A two three seven
    Flight 237 is in room 302. -> Flight two three seven is in room three zero two.
    Room 4B, seat 14A -> Room four B, seat fourteen A
    Dial 911. -> Dial nine one one.
    Your passcode 481 093 times out. -> Your passcode four eight one, zero nine three times out.
    ZIP 94107 -> zip nine four one zero seven
    12345678 -> one two three four, five six seven eight
    MAC 00:11:3C:4D:5E:6F, AA-BB-CC-DD-EE-FF -> M A C zero zero, one one, three C, four D, five E,\
 six F, A A, B B, C C, D D, E E, F F
""")
def test_codes_are_read_digit_by_digit_with_their_zeros(written: str, expected: str) -> None:
    assert spoken(written) == expected


@rows("""
    Your code expires in 10 minutes. -> Your code expires in ten minutes.
    A PIN is a 4-digit code. -> a pin is a four digit code.
    Enter the 6-digit code. -> Enter the six digit code.
    Your PIN has 4 digits. -> Your pin has four digits.
    The order has 300 parts. -> The order has three hundred parts.
    a 1-on-1 talk, 9-to-5, mid-1990s -> a one on one talk, nine to five, mid nineteen nineties
    A code is on its way and we do see 45 of us. -> a code is on its way and we do see forty five of us.
    Part number 5580 and the quantity 12 -> Part number five five eight zero and the quantity twelve
    I have 1500 points. -> I have one thousand five hundred points.
    Your code is valid. There are 45 of us. -> Your code is valid. There are forty five of us.
    10000 steps -> ten thousand steps
""")
def test_a_number_that_counts_something_is_not_a_code(written: str, expected: str) -> None:
    assert spoken(written) == expected


def test_a_colon_announces_a_code_on_the_next_line() -> None:
    assert spoken("Your code is:\n4821") == "Your code is: four eight two one"
    assert spoken("Your code is here\n4821") == "Your code is here. four thousand eight hundred twenty one"


def test_the_context_decides_whether_a_number_is_a_code() -> None:
    assert spoken("1234 now", context="your PIN is") == "one two three four now"
    assert spoken("1234 now", context="we shipped") == "one thousand two hundred thirty four now"


@rows("""
    555-0142 -> five five five, zero one four two
    (415) 555-0142 -> four one five, five five five, zero one four two
    415.555.0142 -> four one five, five five five, zero one four two
    4155550142 -> four one five, five five five, zero one four two
    1-800-555-0199 -> one, eight hundred, five five five, zero one nine nine
    1-800-FLOWERS or 800-CONTACT -> one, eight hundred, flowers or eight hundred, contact
    1-800-GOT-JUNK or 1-888-GO-FEDEX -> one, eight hundred, got junk or one, eight eight eight, go fedex
    1-800-BCD-1234 -> one, eight zero zero, B C D, one two three four
    +44 20 7946 0958 -> plus four four, two zero, seven nine four six, zero nine five eight
    +1 (212) 555-0187 -> plus one, two one two, five five five, zero one eight seven
    0800 123 4567 -> zero eight hundred, one two three, four five six seven
    Dial ext. 7 for help. -> Dial extension seven for help.
    (800) 555-0100 ext. 42 -> eight hundred, five five five, zero one zero zero extension four two
    555-0142 x7 -> five five five, zero one four two extension seven
""")
def test_phone_numbers_are_read_in_groups(written: str, expected: str) -> None:
    assert spoken(written) == expected


@rows("""
    $1,234.50 -> one thousand two hundred thirty four dollars and fifty cents
    $5 -> five dollars
    $1.01 -> one dollar and one cent
    $0.99 -> ninety nine cents
    $0.00 -> zero dollars
    £3.20 -> three pounds and twenty pence
    20€ -> twenty euros
    50¢ -> fifty cents
    $3M -> three million dollars
    $5 million -> five million dollars
    $2.5B -> two point five billion dollars
    USD 40 -> forty dollars
    40 CAD -> forty Canadian dollars
    $5-10 -> five to ten dollars
    $5-$10 -> five to ten dollars
    -$45.10 -> minus forty five dollars and ten cents
    $40/month -> forty dollars per month
    ¥500 -> five hundred yen
    $.50 -> fifty cents
    a $5 fee -> a five dollar fee
    $0.125 -> zero point one two five dollars
    $9.99 USD -> nine dollars and ninety nine cents
    $1000000000000000000 -> one zero zero zero zero zero zero zero zero zero zero zero zero zero zero zero\
 zero zero zero dollars
    Rs. 500, Rs 1 -> five hundred rupees, one rupee
    $1.50/lb -> one dollar and fifty cents per pound
""")
def test_money_is_read_in_units_and_hundredths(written: str, expected: str) -> None:
    assert spoken(written) == expected


@rows("""
    March 3rd 2026 -> March third, twenty twenty six
    March 3, 2026 -> March third, twenty twenty six
    3/14/2026 -> March fourteenth twenty twenty six
    1/15/2026, 12/31/25 -> January fifteenth twenty twenty six, December thirty first twenty twenty five
    31/12/2025 -> December thirty first twenty twenty five
    2026-03-14 -> March fourteenth twenty twenty six
    on the 3rd -> on the third
    Mar 3 -> March third
    Tue, Mar 3 -> Tuesday, March third
    on 3/4 -> on March fourth
    3 March 2026 -> the third of March twenty twenty six
    the 4th of July -> the fourth of July
    March 3–5 -> March third to fifth
    Jan. 15th -> January fifteenth
    Mon-Fri -> Monday to Friday
    1999, 2005, 2026, 1900 -> nineteen ninety nine, two thousand five, twenty twenty six, nineteen hundred
    in 1776 -> in seventeen seventy six
    the 1990s -> the nineteen nineties
    '90s -> nineties
    2048 users -> two thousand forty eight users
    The sun sat. -> The sun sat.
    2025/11/18, 18.11.2025 -> November eighteenth twenty twenty five, November eighteenth twenty twenty five
    version 4.11.2025 -> version four point eleven point two zero two five
    expires 04/2027 -> expires April twenty twenty seven
    Oct–Dec, Jan.-March -> October to December, January to March
    Nov 30 - Dec 2 -> November thirtieth to December second
    in FY2024, FY '25 -> in fiscal year twenty twenty four, fiscal year twenty five
    M-F 8-5 -> Monday to Friday eight to five
""")
def test_dates_are_read_month_first_and_years_in_two_halves(written: str, expected: str) -> None:
    assert spoken(written) == expected


@rows("""
    3:05 pm -> three oh five P M
    18:05 -> eighteen oh five
    9am -> nine A M
    10:00 -> ten o'clock
    14:00 -> fourteen hundred
    12:30 a.m. -> twelve thirty A M.
    at 5 p.m. today -> at five P M today
    4-5pm, 10 – 2:30 p.m. -> four to five P M, ten to two thirty P M.
    10 a.m. PST, 5 p.m. Monday -> ten A M P S T, five P M Monday
    at 5 p.m. We close -> at five P M. We close
    9:00 pm, 9:00 -> nine P M, nine o'clock
    12am, 12 p.m. -> twelve A M, twelve P M.
    9am-5pm -> nine A M to five P M
    23:59:07 -> twenty three fifty nine and seven seconds
    24/7 -> twenty four seven
""")
def test_times_of_day_are_read_with_their_am_or_pm(written: str, expected: str) -> None:
    assert spoken(written) == expected


@rows("""
    5% -> five percent
    99.9% -> ninety nine point nine percent
    5 km -> five kilometers
    1 km -> one kilometer
    72°F -> seventy two degrees Fahrenheit
    -5°C -> minus five degrees Celsius
    10 mph -> ten miles per hour
    500 MB -> five hundred megabytes
    3 lbs -> three pounds
    5'10" -> five foot ten
    30cm x 20cm -> thirty centimeters by twenty centimeters
    7x faster -> seven times faster
    3-5 days -> three to five days
    10–12 -> ten to twelve
    pages 3-7 -> pages three to seven
    v2.1.3 -> version two point one point three
    Version v2.1 and version V3 -> Version two point one and version three
    3M makes tape. We have 3M users. -> three M makes tape. We have three million users.
    iOS 17.2 -> iOS seventeen point two
    192.168.1.254 -> one nine two dot one six eight dot one dot two five four
    0.5 and .75 -> zero point five and point seven five
    1/2, 3/4, 3 1/2, 2½ -> one half, three quarters, three and a half, two and a half
    5/10 -> five out of ten
    -5 -> minus five
    1,000,000 -> one million
    the 21st, 103rd -> the twenty first, one hundred third
    10k -> ten thousand
    10² -> ten squared
    a 5 lb bag weighs 5 lb -> a five pound bag weighs five pounds
    a 10-ft pole, a 60-min call -> a ten foot pole, a sixty minute call
    6 ft. 2 in tall -> six feet two inches tall
    a 2x4, 12x15 -> a two by four, twelve by fifteen
    a 5K run on a 4K TV for 5K users -> a five K run on a four K T V for five thousand users
    ratio 3:2 -> ratio three to two
    4.5/5 stars -> four point five out of five stars
    blood pressure 120/80, 20/20 -> blood pressure one twenty over eighty, twenty twenty
    401k, 401(k), a 1099, 529.5 -> four oh one K, four oh one K, a ten ninety nine,\
 five hundred twenty nine point five
    order 1099 -> order one zero nine nine
    1080p, error 404 -> ten eighty P, error four oh four
    2x/day, 5 MB/s -> two times per day, five megabytes per second
    an 80/20 split, a 502 error -> an eighty twenty split, a five oh two error
    It is 70 degrees F. -> It is seventy degrees Fahrenheit.
    a Boeing 747, an A320, US-101 -> a Boeing seven forty seven, an A three twenty, U S one oh one
    In Paris 250 people -> In Paris two hundred fifty people
    version 3.11, 3.11 -> version three point eleven, three point one one
    221B Baker Street, 221B users -> two twenty one B Baker Street,\
 two hundred twenty one billion users
    742 Evergreen Terrace -> seven forty two Evergreen Terrace
    1600 Pennsylvania Ave. -> sixteen hundred Pennsylvania Avenue.
    #5 -> number five
""")
def test_numbers_are_read_with_their_units_and_signs(written: str, expected: str) -> None:
    assert spoken(written) == expected


@rows("""
    jane.doe@example.com -> jane dot doe, at example dot com
    john_smith99@mail.example.co.uk -> john underscore smith nine nine, at mail dot example dot co dot U K
    https://www.example.com/help -> W W W dot example dot com slash help
    Visit example.com. -> Visit example dot com.
    report_2024.pdf or photo.jpg -> report underscore two zero two four dot P D F or photo dot J P G
    @john_doe and Done.Next -> at john underscore doe and Done. Next
    acme-support.io -> acme dash support dot I O
""")
def test_internet_addresses_are_read_mark_by_mark(written: str, expected: str) -> None:
    assert spoken(written) == expected


@rows("""
    Dr. Smith of 12 Main St. met St. Paul. -> Doctor Smith of twelve Main Street met Saint Paul.
    Rodeo Dr. is nice. -> Rodeo Drive is nice.
    42nd St and 5th Ave -> forty second Street and fifth Avenue
    3 tbsp. salt, 5 lbs. of it -> three tablespoons salt, five pounds of it
    Mr. and Mrs. J. K. Rowling -> Mister and Missus J K Rowling
    Acme Inc. is here. -> Acme Incorporated is here.
    e.g. this, i.e. that, etc. -> for example this, that is that, et cetera.
    approx. five vs. six -> approximately five versus six
    No. That is wrong. -> No. That is wrong.
    No. 5 is right. -> number five is right.
    Chapter IV, King Henry VIII -> Chapter four, King Henry the eighth
    Springfield, IL 62704 -> Springfield, Illinois six two seven zero four
    our Boston, MA office, in Portland, OR -> our Boston, Massachusetts office, in Portland, Oregon
    we met Bob, OK? -> we met Bob, okay?
    CALL JOHN, OR ELSE -> call john, or else
    Boise, ID 83702 and order ID 83702 -> Boise, Idaho eight three seven zero two and order I D\
 eight three seven zero two
    123 E. 45th St -> one twenty three East forty fifth Street
    4521 W. Elm St. is it -> forty five twenty one West Elm Street is it
    45 W. 3rd St. is it -> forty five West third Street is it
    at 1600 Pennsylvania Ave NW -> at sixteen hundred Pennsylvania Avenue Northwest
    Hwy 101 or Rt. 9 -> Highway one oh one or route nine
    P.O. Box 77, a.k.a. Bob -> P O Box seventy seven, also known as Bob
    I am John Smith III, no VII. -> I am John Smith the third, no V I I.
    a B- or A- -> a B minus or A minus
    A- and B-rated, C++ and C# -> A— and B rated, C plus plus and C sharp
    w/o milk -> without milk
""")
def test_abbreviations_are_read_in_full(written: str, expected: str) -> None:
    assert spoken(written) == expected


@rows("""
    API, FAQ, USA -> A P I, F A Q, U S A
    the U.S. economy -> the U S economy
    J.D. Power, the U.S. Bank. -> J D Power, the U S Bank.
    We ship to the U.S. We do. -> We ship to the U S. We do.
    PIN, NASA, SIM -> pin, NASA, sim
    WWI and WWII -> World War one and World War two
    IBAN and ASAP -> I B A N and A S A P
    your XKCD -> your X K C D
    PLEASE HOLD THE LINE -> please hold the line
    AT&T and R&D -> A T and T and R and D
    A1, B2B, 4G, MP3, 3D -> A one, B two B, four G, M P three, three D
    Covid-19 and WD-40 -> Covid nineteen and W D forty
    A dog. Plan A is fine. -> a dog. Plan A is fine.
    Press A or B. -> Press A or B.
    WiFi iOS eBay don't O'Brien's naïve -> WiFi iOS eBay don't O'Brien's naïve
""")
def test_initialisms_are_spelled_and_acronyms_are_read_as_words(written: str, expected: str) -> None:
    assert spoken(written) == expected


@rows("""
    Press * or #. -> Press star or pound.
    the # key, then 1# -> the pound key, then one pound
    dial *67 first, then *9 -> dial star six seven first, then star nine
    2 * 3 is 6 -> two times three is six
""")
def test_star_and_pound_are_read_as_telephone_keys(written: str, expected: str) -> None:
    assert spoken(written) == expected


def test_letters_that_are_also_words_are_respelled_as_their_names() -> None:
    expected = [word.text for word in normalize("A1 I saw plan A of the API in a row, I said A.")]
    assert " ".join(expected) == "eh one I saw plan eh of the eh P eye in a row I said eh"


@rows("""
    **bold** and _x_ and `code` -> bold and x and code
    # Heading -> Heading
    - a bullet -> a bullet
    1. Unplug it. -> one, Unplug it.
    see [our page](https://example.com/a,b) now -> see our page now
    Hello (really) "quoted" -> Hello, really, quoted
    well... let me see — yes! -> well, let me see— yes!
    salt & pepper @ home + more = less -> salt and pepper at home plus more equals less
    <b>fat</b> -> fat
    | Basic | $10 | -> Basic, ten dollars,
    Hi 😀 there :-) -> Hi there
    “Smart” ‘quotes’ … right? -> Smart quotes, right?
""")
def test_markdown_is_skipped_and_punctuation_becomes_pauses(written: str, expected: str) -> None:
    assert spoken(written) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "😀🎉",
        "\x00\x07",
        "\ud800",
        "\u200b\u202e",
        "---",
        "```python\n```",
        "|---|---|",
        "...",
        "()",
    ],
)
def test_text_without_words_gives_no_words(text: str) -> None:
    assert normalize(text) == []
