"""A small world of English: sentences of a call centre, drawn by a seed, and their spoken words.

    sentence(random.Random(7))       "Your balance is $45.20."
    spoken_words("Your balance ...") (Your balance is forty five dollars and twenty cents.)

Sentences are made of templates whose slots hold digits, amounts, dates, times, weekdays, months, names of
things, and of phrases, one to three clauses each. Text is written as a language model writes it; the words
are those that the product's own normalizer makes of it, so the small voice learns what it will be given.
"""

import random
from collections.abc import Callable, Iterator
from functools import cache

from vivavoce.tts_engine.cosyvoice.generation_segmenter import GenerationSegmenter
from vivavoce.tts_engine.reading.languages.mul.rules import (
    MULTILINGUAL_VOICE_SCRIPTS,
    LanguageGrammars,
)
from vivavoce.tts_engine.segmenter import SpokenWord

WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
_ROLES = "a technician|an agent|our manager|the driver|a specialist|our team|the doctor|a nurse".split("|")
_PLACES = (
    "the store|our office|the front desk|your home|the main station|the branch|the airport|the clinic".split(
        "|"
    )
)
_THINGS = (
    "your order|your payment|the refund|your appointment|the delivery|your account|the invoice|your booking|"
    "your ticket|the package|your password|your reservation|the contract|your card"
).split("|")
_STATES = (
    "is ready|is on its way|has been confirmed|has been cancelled|is still open|was sent today|"
    "is being checked|has arrived|is complete|was changed"
).split("|")
_TIMES_OF_DAY = "in the morning|in the afternoon|in the evening|before noon|after lunch".split("|")
_NUMBERED = "order|account|invoice|ticket|booking|reference|customer".split("|")

# Sentences without slots.
PHRASES = tuple(
    """
Thank you for calling.
Thank you for waiting.
Thank you very much for your patience.
How can I help you today?
How may I help you?
Please hold the line.
Please stay on the line.
One moment, please.
Just a moment, please.
I am looking that up for you.
Let me check that for you.
Let me look at your account.
I have found your order.
I can see your booking here.
Can you hear me now?
Could you repeat that, please?
Could you spell your last name?
What is your name, please?
What is your order number?
May I have your phone number?
Can I have your email address?
Is that correct?
Is there anything else I can do for you?
I am sorry about that.
I am very sorry for the trouble.
I understand.
That is no problem at all.
Of course, I can help you with that.
Yes, that is right.
No, that is not possible.
You are welcome.
Have a nice day.
Have a good evening.
Goodbye, and thank you for calling.
Good morning, how can I help you?
Good afternoon, and welcome.
All our lines are busy right now.
Your call is important to us.
This call may be recorded.
I will connect you with an agent.
I will send you an email.
I will call you back soon.
We will send you a message.
You will get a letter from us.
Please try again later.
Please check your email.
Please enter your number.
Please say yes or no.
Please press the green button.
Please turn it off and on again.
Please tell me your date of birth.
Your new card is in the mail.
Your password has been changed.
Your payment was not accepted.
Your account is now closed.
The service is working again.
The system is slow today.
The delivery is free.
The store is open now.
The office is closed on Sunday.
We are open every day.
We have no more tickets.
There is a small problem with your order.
There is no charge for this.
It should work again now.
It takes about a week.
That will take a few minutes.
This is the last step.
The technician is on the way.
The train is late today.
Do you want to change your booking?
Do you have your card with you?
Did you get our message?
Are you still there?
Would you like to wait?
Would you like to pay now or later?
Which day is good for you?
When can we call you back?
Where are you calling from?
What time is best for you?
I can book that for you right now.
I can give you the price.
I need a few more details.
I would like to help you.
We can try another day.
We could send a new one.
You can pay by card or by check.
You can come back any time.
You do not need to do anything.
Let us start again.
Everything is fine now.
""".strip().splitlines()
)


def sentence(draw: random.Random) -> str:
    """One sentence of the world, as a language model writes it: a phrase, a template, or both in turn."""
    kind = draw.random()
    if kind < 0.05:
        return draw.choice(PHRASES)
    end = draw.choice(PHRASES) if kind < 0.3 else _filled_template(draw)
    if kind < 0.5:
        end = f"{draw.choice(_STATEMENTS).rstrip('.')}, {_inside(end)}"
    return end[0].upper() + end[1:]


def _filled_template(draw: random.Random) -> str:
    return draw.choice(_TEMPLATES)(draw).replace("m..", "m.")


def _inside(text: str) -> str:
    """A sentence as the second clause of another."""
    return text if text.startswith("I ") else text[0].lower() + text[1:]


def sentences(seed: int) -> Iterator[str]:
    """Endless sentences, each another; the same for the same seed."""
    draw, seen = random.Random(seed), set[str]()
    while True:
        text = sentence(draw)
        if text not in seen:
            seen.add(text)
            yield text


@cache
def _languages() -> LanguageGrammars:
    return LanguageGrammars.load()


def spoken_words(text: str) -> tuple[SpokenWord, ...]:
    """The words of a text as the front end of a CosyVoice bundle hands them on."""
    segmenter = GenerationSegmenter(
        clauses=_languages().clause_normalizer("en", frozenset()), scripts=MULTILINGUAL_VOICE_SCRIPTS
    )
    segments = [*segmenter.push(text), *segmenter.flush()]
    return tuple(word for segment in segments for word in segment.words)


_STATEMENTS = tuple(phrase for phrase in PHRASES if phrase.endswith("."))

# Slots


def _digits(draw: random.Random, least: int = 3, most: int = 6) -> str:
    return " ".join(str(draw.randint(0, 9)) for _ in range(draw.randint(least, most)))


def _amount(draw: random.Random) -> str:
    dollars = draw.choice([draw.randint(1, 20), draw.randint(20, 99), draw.randint(100, 999), 1000])
    return f"${dollars}.{draw.randint(1, 99):02}" if draw.random() < 0.4 else f"${dollars}"


def _date(draw: random.Random) -> str:
    return f"{draw.choice(MONTHS)} {draw.randint(1, 28)}"


def _day(draw: random.Random) -> str:
    weekday = draw.choice(WEEKDAYS)
    return draw.choice([f"{weekday}, {_date(draw)}", weekday, f"next {weekday}", _date(draw)])


def _clock(draw: random.Random) -> str:
    hour, minute = draw.randint(1, 12), draw.choice(["", ":15", ":30", ":45", ":10", ":20", ":40", ":50"])
    return f"{hour}{minute} {draw.choice(['a.m.', 'p.m.'])}"


def _count(draw: random.Random) -> str:
    return str(draw.randint(2, 60))


def _percent(draw: random.Random) -> str:
    return f"{draw.randint(1, 99)} percent"


def _thing(draw: random.Random) -> str:
    return draw.choice(_THINGS)


_Slot = Callable[[random.Random], str]
_SLOTS: dict[str, _Slot] = {
    "digits": _digits,
    "amount": _amount,
    "date": _date,
    "day": _day,
    "weekday": lambda draw: draw.choice(WEEKDAYS),
    "month": lambda draw: draw.choice(MONTHS),
    "clock": _clock,
    "count": _count,
    "percent": _percent,
    "thing": _thing,
    "state": lambda draw: draw.choice(_STATES),
    "role": lambda draw: draw.choice(_ROLES),
    "place": lambda draw: draw.choice(_PLACES),
    "part": lambda draw: draw.choice(_TIMES_OF_DAY),
    "kind": lambda draw: draw.choice(_NUMBERED),
    "unit": lambda draw: draw.choice(["minutes", "hours", "days", "weeks", "months", "years"]),
}


class _Template:
    """Text with slots in braces, such as "on {day}"."""

    def __init__(self, text: str) -> None:
        self._parts = [part.split("}") for part in text.split("{")]

    def __call__(self, draw: random.Random) -> str:
        first, *rest = self._parts
        return first[0] + "".join(_SLOTS[slot](draw) + text for slot, text in rest)


_TEMPLATES = [
    _Template(line)
    for line in """
your {kind} number is {digits}.
the {kind} number is {digits}, is that correct?
please call {digits} and ask for {role}.
I have {digits} as your {kind} number.
the code is {digits}.
the last digits of your card are {digits}.
your balance is {amount}.
your balance is {amount}, and {amount} is due on {day}.
that will be {amount}.
the total is {amount}, with {percent} tax.
you still have to pay {amount} by {day}.
a payment of {amount} was made on {date}.
we will refund {amount} to your card.
the price went from {amount} to {amount}.
you get {percent} off until {day}.
{thing} {state}.
{thing} {state}, and {thing} {state}.
{thing} {state}, but {thing} {state}.
{role} will call you at {clock}.
{role} will come on {day} at {clock}.
{role} will be at {place} on {day}.
{thing} will be at {place} by {clock}.
I can offer you {weekday} at {clock} or {weekday} at {clock}.
we are open from {clock} to {clock} on {weekday}.
{place} is closed on {day}.
{place} opens at {clock} and closes at {clock}.
your appointment is on {day} at {clock}.
would you like to come on {weekday} or on {weekday}?
would {day} at {clock} work for you?
can you come to {place} at {clock}?
it will take about {count} {unit}.
please wait {count} {unit}.
you are number {count} in the line.
there are {count} people before you.
{thing} is for {count} people in {month}.
the meeting in {month} is at {clock}.
please come {part} on {weekday}.
{role} can see you {part}.
if {thing} {state}, please call us {part}.
{thing} {state} since {month}.
we moved {thing} from {day} to {day}.
your contract ends on {date}.
I will send {thing} on {weekday}.
so that is {digits}, thank you.
""".strip().splitlines()
]
