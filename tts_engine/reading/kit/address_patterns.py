"""Patterns of URLs, e-mail addresses, domain names and paths of files in folded text.

Source: RFC 1035 and RFC 5321 for the lengths of labels and local parts.
"""

from dataclasses import dataclass

# Without "in", which is a word in several languages: "Dr.in" is no domain.
TOP_LEVEL_DOMAINS = (
    "com|org|net|edu|gov|mil|info|biz|app|dev|shop|store|online|site|tech|cloud|health|bank|travel|"
    "xyz|page|link|pro|io|ai|ly|gg|fm|co|me|tv|us|uk|ca|au|de|fr|es|it|nl|eu|jp|cn|kr|ru|ch|at|be|se|no|dk|ie|nz|br|pt|mx|example|test|local"
)

FILE_TYPES = (
    "pdf|docx?|xlsx?|pptx?|csv|txt|zip|jpe?g|png|gif|mp3|mp4|wav|mov|html?|xml|json|ya?ml|toml|md|py|jsx?|tsx?|css|sh"
    "|log|conf|cfg|ini|exe|apk|dmg"
)


@dataclass(frozen=True, slots=True)
class AddressPatterns:
    """Regular expressions of addresses as a script writes them."""

    url: str  # with a scheme
    email: str
    website: str  # "www." or a known top-level domain, with or without a path
    file: str  # "main.py", "src/main.py"
    path: str  # that begins with a sign: "/etc/hosts", "~/docs"


def address_patterns(
    *,
    url_character: str = r"[^\s<>()\[\]\"]",
    word_character: str = r"\w",
    email_end: str = r"(?!\w)",
    top_level_domains: str = TOP_LEVEL_DOMAINS,
) -> AddressPatterns:
    """Return the patterns for a script.

    ``url_character``: class of the characters of a path. ``word_character``: members of the class of the
    characters that continue a word. ``email_end``: condition on the end of an e-mail address. All repeats are
    bounded, so that matching is linear.
    """
    letter = "[A-Za-z0-9]" if word_character != r"\w" else r"[^\W_]"  # "müller-söhne.de"
    label = rf"{letter}(?:(?:{letter}|-){{0,62}}{letter})?"
    name, folder = rf"[{word_character}-]", rf"[{word_character}.-]{{1,40}}+"
    domain = rf"(?:{label}\.){{1,8}}(?:{top_level_domains})(?![{word_character}-]|\.[{word_character}])"
    return AddressPatterns(
        url=rf"(?:https?|ftp)://{url_character}{{1,300}}",
        email=rf"(?:mailto:)?{letter}[{word_character}.+'-]{{0,63}}"
        rf"@(?:(?:{letter}|-){{1,63}}\.){{1,8}}[A-Za-z]{{2,24}}{email_end}",
        file=rf"(?:{folder}/){{0,8}}+{name}{{1,60}}+(?:\.{name}{{1,20}}+){{0,2}}?\.(?:{FILE_TYPES})(?!{name}|\.{name})",
        path=rf"(?<![{word_character}/<.)\]])(?:~|\.{{1,2}})?/(?=[a-z._]){folder}(?:/{folder}){{0,12}}+/?(?!{name}|/)",
        website=rf"(?:www\.{url_character}{{1,200}}|{domain}(?:[:/?#]{url_character}{{0,200}})?)",
    )


SPACED_ADDRESSES = address_patterns()
# Where words follow an address without a blank, it ends at the first character that is not ASCII.
UNSPACED_ADDRESSES = address_patterns(url_character=r"[!-;=?-~]", word_character="A-Za-z0-9_", email_end="")
