"""The packaged voice's files in the form that loads fastest, kept in the user's cache folder.

Cutting and optimizing the graphs, and decoding lexicons and tagger from JSON, takes longer than all else
before the first word. The results are kept in one file of 32 MB, ``hibari-KEY.zip``, whose key names what
they depend on. Its members are

    signed/encoder.onnx,           the graphs of ``graph.split_graph``, optimized by ONNX Runtime for its
    signed/decoder.onnx            own provider for processors
    unsigned/encoder.onnx,         the same with uint8 weights, for processors on which sums of products with
    unsigned/decoder.onnx          int8 weights saturate
    telephone.onnx                 the graph of ``telephone_graph``, unless its weights are missing or damaged
    product.onnx                   the product by which that is tried
    gold.txt, silver.txt           tables of the lexicons: the phonemes of a word; silver.txt also has
                                   the words of CMUdict that the lexicons lack, and names by hand
    tagger.txt, tagger.json        the part-of-speech tagger: a table of its weights, and the rest of it

A file that is missing or damaged is made again. Where none can be written, loading takes longer.

``cmudict.txt.xz`` has words of CMUdict that the lexicons lack, mostly names, a line each, "kowalski K AO0 W
AA1 L S K IY0": the first pronunciation of each word in ASCII letters that is neither in the lexicons of
hibari-tts 0.2.1 nor one of their words with -s, -ed or -ing. Without it, the voice's network for unknown
words guesses two or more sounds of 23 % of such words wrongly. ``names.txt`` has brands, medicines, technical
words, places, people and words with accents in the same form, by hand: those that neither CMUdict nor the
lexicons have, or have with other sounds.

Source: hibari-tts 0.2.1 (Apache-2.0): g2p/__init__.py, g2p/lexicon.py and g2p/tagger.py; CMUdict 1.1.3 of
Carnegie Mellon University, whose licence is in ``cmudict-LICENSE.txt``.
"""

import gzip
import hashlib
import json
import logging
import lzma
import re
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime
import platformdirs
from hibari import g2p
from hibari.g2p.lexicon import Lexicon
from hibari.g2p.tagger import Tagger
from hibari.g2p.tokenize import Tokenizer

from ..devices.onnx_sessions import CPU_SESSIONS, session_options, sums_are_exact
from ..phonemes.arpabet import from_arpabet
from ..whole_files import written_whole
from .string_table import StringTable, encode_table

logger = logging.getLogger(__name__)

SHA256 = "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8"  # of hibari.onnx

CMUDICT = Path(__file__).with_name("cmudict.txt.xz")
_NAMES = Path(__file__).with_name("names.txt")
# Modules that make the members; a change of one makes the file anew.
_MAKERS = (
    "prepared_files.py",
    "string_table.py",
    "cmudict.txt.xz",
    "names.txt",
    "graph.py",
    "telephone_graph.py",
    "encoder_graph.py",
    "decoder.py",
    "../phonemes/arpabet.py",
    "../onnx_graphs/onnx_parts.py",
    "../onnx_graphs/exact_products.py",
)
TELEPHONE_WEIGHTS = "telephone_decoder.npz"
_TELEPHONE_SHA256 = "d0c100db7442166d0ae4f1e4d9e670b0500f23d2a241f5c95d8bff9330129551"
_WEIGHTS_KEY = '"weights":{"'
# "feature":{"tag":weight,...}; a quoted feature may hold escapes and braces, a table holds neither.
_ENTRY = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)":(\{[^{}]*\})')


def unoptimized_graphs(assets: Path) -> tuple[bytes, bytes, bytes | None]:
    """The graphs as of ``PreparedFiles`` for any execution provider: the optimized ones have operators of the
    CPU's only.

    Products that the provider leaves to the processor are exact there.
    """
    from ..onnx_graphs.exact_products import signed_products_are_exact, with_unsigned_weights
    from .graph import split_graph  # both import onnx, which takes as long as the prepared files

    graphs = split_graph((assets / "hibari.onnx").read_bytes())
    if signed_products_are_exact():
        return graphs.encoder, graphs.decoder, _telephone_graph()
    return (
        with_unsigned_weights(graphs.encoder),
        with_unsigned_weights(graphs.decoder),
        _telephone_graph(),
    )


class HibariGraphMismatchError(ValueError):
    """The model file is not the one that the split into encoder and decoder was written for."""


class PreparedFiles:
    """The contents of the voice's files, decoded when they are asked for.

    Args:
        members: contents by the names of the module's docstring.
    """

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self._members = members

    @classmethod
    def load(cls, assets: Path, folder: Path | None = None) -> "PreparedFiles":
        """Read the file of the cache folder, or make it from hibari's folder of assets.

        folder: instead of the user's cache folder. Raises HibariGraphMismatchError for another version of
        hibari.
        """
        model = (assets / "hibari.onnx").read_bytes()
        digest = hashlib.sha256(model).hexdigest()
        if digest != SHA256:
            raise HibariGraphMismatchError(
                f"hibari.onnx has SHA-256 {digest}, expected {SHA256} (hibari-tts 0.2.1)"
            )
        path = (folder or platformdirs.user_cache_path("vivavoce")) / f"hibari-{_key()}.zip"
        try:
            with zipfile.ZipFile(path) as file:
                return cls({name: file.read(name) for name in file.namelist()})
        except (OSError, RuntimeError, zipfile.BadZipFile) as error:
            logger.debug("Preparing the packaged voice: %s", error)
        members = _prepare(assets, model)
        try:
            _write(path, members)
        except OSError as error:
            logger.debug("The prepared voice cannot be kept: %s", error)
        return cls(members)

    def graphs(self) -> tuple[bytes, bytes, bytes | None]:
        """The graphs of encoder, decoder, and of the decoder for telephones, if its weights are whole.

        The first two are optimized; their products are exact on this processor.
        """
        weights = "signed" if sums_are_exact(self._members["product.onnx"]) else "unsigned"
        encoder, decoder = (self._members[f"{weights}/{part}.onnx"] for part in ("encoder", "decoder"))
        return encoder, decoder, self._members.get("telephone.onnx")

    def lexicon(self) -> Lexicon:
        """Return hibari's American English lexicon."""
        return Lexicon(StringTable(self._members["gold.txt"]), StringTable(self._members["silver.txt"]))

    def tagger(self) -> Tagger:
        """Return hibari's part-of-speech tagger."""
        model = json.loads(self._members["tagger.json"])
        return Tagger(model | {"weights": StringTable(self._members["tagger.txt"])})

    def g2p(self) -> g2p.G2P:
        """Return hibari's American English grapheme-to-phoneme converter."""
        converter = g2p.G2P.__new__(g2p.G2P)  # its constructor reads the files as shipped
        converter.lexicon, converter.tagger = self.lexicon(), self.tagger()
        converter.tokenizer = Tokenizer(g2p._load_json("tokenizer_exceptions.json"))
        converter._oov, converter.unk, converter.british = None, "", False
        return converter


def _key() -> str:
    """A name for what the members depend on beside hibari, whose version is fixed."""
    sources = [(Path(__file__).parent / name).read_bytes() for name in _MAKERS]
    parts = [onnxruntime.__version__.encode(), *sources, _telephone_weights()]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _telephone_weights() -> bytes:
    """The content of the file; empty, if there is none."""
    try:
        return (Path(__file__).parent / TELEPHONE_WEIGHTS).read_bytes()
    except OSError:
        return b""


def _telephone_graph() -> bytes | None:
    """The decoder for telephones; None, if its weights are missing or damaged."""
    from .telephone_graph import make_telephone_decoder, read_weights

    content = _telephone_weights()
    if hashlib.sha256(content).hexdigest() != _TELEPHONE_SHA256:
        return None
    return make_telephone_decoder(read_weights(content))


def _prepare(assets: Path, model: bytes) -> dict[str, bytes]:
    # These import onnx, which takes as long as the prepared files.
    from ..onnx_graphs.exact_products import saturating_product, with_unsigned_weights
    from .graph import split_graph

    graphs = split_graph(model)
    signed = {"encoder.onnx": _optimize(graphs.encoder), "decoder.onnx": _optimize(graphs.decoder)}
    telephone = _telephone_graph()
    gold: dict[str, Any] = _read_json(assets / "lexicon_us_gold.json.gz")
    silver: dict[str, Any] = _read_json(assets / "lexicon_us_silver.json.gz")
    names = read_names()
    tagger, weights = _split_tagger(gzip.decompress((assets / "tagger.json.gz").read_bytes()).decode())
    return {
        **{f"signed/{name}": graph for name, graph in signed.items()},
        **{f"unsigned/{name}": with_unsigned_weights(graph) for name, graph in signed.items()},
        **({"telephone.onnx": telephone} if telephone else {}),
        "product.onnx": saturating_product(),
        "gold.txt": encode_table(
            (word, _as_text(entry)) for word, entry in gold.items() if word not in names
        ),
        "silver.txt": encode_table(_with_names(silver).items()),
        "tagger.txt": encode_table(weights),
        "tagger.json": tagger.encode(),
    }


def _with_names(silver: Mapping[str, str]) -> dict[str, str]:
    """Add the words of CMUdict, and replace words of the lexicon by names."""
    names = read_names()
    return read_words() | {word: said for word, said in silver.items() if word.lower() not in names} | names


def _read_json(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def _split_tagger(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The tagger's JSON without weights, and the features with the JSON of their tables."""
    start = text.rindex(_WEIGHTS_KEY)
    entries = _ENTRY.findall(text, start + len(_WEIGHTS_KEY) - 1)
    weights = [
        (json.loads(f'"{feature}"') if "\\" in feature else feature, table) for feature, table in entries
    ]
    return text[:start] + '"weights":{}}', weights


def _optimize(graph: bytes) -> bytes:
    """Apply the graph optimizations of ONNX Runtime that hold for any processor."""
    options = session_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "graph.onnx")
        CPU_SESSIONS.open(graph, options)
        return (Path(folder) / "graph.onnx").read_bytes()


def _as_text(entry: Any) -> str:
    return entry if isinstance(entry, str) else json.dumps(entry)  # by part of speech


def _write(path: Path, members: Mapping[str, bytes]) -> None:
    """Write a file that is whole whenever it is there, and remove those of other versions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as unfinished, zipfile.ZipFile(unfinished, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    for other in path.parent.glob("hibari-*.zip"):
        if other != path:
            other.unlink(missing_ok=True)


def read_words() -> dict[str, str]:
    """Return the phonemes of each word, in Kokoro's alphabet with the mark of stress before its vowel."""
    return _phonemes_by_word(lzma.decompress(CMUDICT.read_bytes()).decode("ascii"))


def read_names() -> dict[str, str]:
    """Return the phonemes of the names by hand, which replace those of other lexicons."""
    return _phonemes_by_word(_NAMES.read_text("utf-8"))


def _phonemes_by_word(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {word: from_arpabet(sounds.split()) for word, sounds in (line.split(" ", 1) for line in lines)}
