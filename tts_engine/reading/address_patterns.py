"""Patterns of URLs, e-mail addresses and domain names in folded text.

Source: RFC 1035 and RFC 5321 for the lengths of labels and local parts.
"""

TOP_LEVEL_DOMAINS = (
    "com|org|net|edu|gov|mil|info|biz|app|dev|shop|store|online|site|tech|cloud|health|bank|travel|"
    "io|ai|co|me|tv|us|uk|ca|au|de|fr|es|it|nl|eu|in|jp|cn|ch|at|be|se|no|dk|ie|nz|br|mx|example|test|local"
)
_REST = r"[^\s<>()\[\]\"]"  # any character of a URL; the bounds on repeats keep matching linear
URL = rf"(?:https?|ftp)://{_REST}{{1,300}}"
EMAIL = r"[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?!\w)"
WWW = rf"www\.{_REST}{{1,200}}"
# A domain name, and a port, path, query or fragment after it.
DOMAIN = (
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{{0,62}}[A-Za-z0-9])?\.){{1,8}}(?:{TOP_LEVEL_DOMAINS})(?![\w-]|\.\w)"
    rf"(?:[:/?#]{_REST}{{0,200}})?"
)
