"""Lexicon files: TOML and PLS, faults with their line, hostile documents, and changes while in use."""

import logging
import os
from pathlib import Path

import pytest

from vivavoce.tts_engine.reading.pronunciation.entries import BadLexicon
from vivavoce.tts_engine.reading.pronunciation.lexicon import Pronunciation
from vivavoce.tts_engine.reading.pronunciation.lexicon_files import LexiconFile, read_lexicon

EXAMPLE = Path(__file__).parents[4] / "examples" / "lexicon.toml"
PLS = """<?xml version="1.0" encoding="UTF-8"?>
<lexicon version="1.0" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon" alphabet="ipa">
  <lexeme><grapheme>judgment</grapheme><grapheme>judgement</grapheme><phoneme>ˈdʒʌdʒ.mənt</phoneme></lexeme>
  <lexeme>
    <grapheme>Newton</grapheme><phoneme>ˈnutən</phoneme><phoneme prefer="true">ˈnjuːtən</phoneme>
    <example>Newton &amp; Sons</example>
  </lexeme>
  <lexeme><grapheme>W3C</grapheme><alias>World Wide Web Consortium</alias></lexeme>
</lexicon>
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_has_respellings_phonemes_and_both() -> None:
    entries = read_lexicon(EXAMPLE).entries
    assert entries["nginx"] == Pronunciation("engine x")
    assert entries["Siobhan"] == Pronunciation(phonemes="ʃɪˈvɔːn")
    assert entries["Saoirse Ronan"] == Pronunciation("Sersha Ronan", "ˈsɜːrʃə ˈroʊnən")


def test_a_lexicon_that_is_nested_too_deeply_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadLexicon, match="nested too deeply"):
        read_lexicon(write(tmp_path / "a.toml", "words = " + "[" * 100_000))


def test_a_pls_document_is_read(tmp_path: Path) -> None:
    assert read_lexicon(write(tmp_path / "a.pls", PLS)).entries == {
        "judgment": Pronunciation(phonemes="ˈdʒʌdʒmənt"),
        "judgement": Pronunciation(phonemes="ˈdʒʌdʒmənt"),
        "Newton": Pronunciation(phonemes="ˈnjuːtən"),
        "W3C": Pronunciation("World Wide Web Consortium"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[words]\nnginx = "engine x"\n"Siobhan" = "/SH AO N/"\n',
            "line 3: 'Siobhan': '/SH AO N/' is not IPA: 'S'",
        ),
        ('[words]\nnginx = ""\n', "line 2: 'nginx': a respelling, phonemes or pinyin are needed"),
        ('[words]\nNode.js = "node jay ess"\n', "line 2: 'Node': allowed is a text"),
        ('[words]\nx = {ipa = "/ɛks/", tone = 1}\n', "line 2: 'x': allowed is a text, or a table"),
        (f'[words]\n{"x" * 65} = "long"\n', "line 2: .* allowed are 1 to 64 characters"),
        ("[words]\nnginx = engine x\n", "not TOML in UTF-8: .*line 2"),
        ('nginx = "engine x"\n', r"has \['nginx'\]; allowed is one table"),
        ("", "has no table"),
    ],
)
def test_a_fault_of_a_toml_lexicon_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadLexicon, match=r"a\.toml.*" + message):
        read_lexicon(write(tmp_path / "a.toml", text))


BOMB = '<!DOCTYPE lexicon [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]><lexicon>&b;</lexicon>'


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (PLS.replace("ˈnutən", "nut3n"), "line 5: 'nut3n' is not IPA: '3'"),
        (PLS.replace('alphabet="ipa"', 'alphabet="x-sampa"'), "line 3: the alphabet 'x-sampa' is not known"),
        (PLS.replace("<grapheme>W3C</grapheme>", ""), "line 8: a lexeme needs a grapheme"),
        (PLS.replace("</lexicon>", ""), "line 10: no element found"),
        (PLS.replace("lexicon", "speak"), "line 2: the outermost element must be lexicon"),
        (BOMB, "line 1: a document type is not allowed"),
        ('<!DOCTYPE lexicon SYSTEM "file:///etc/passwd"><lexicon/>', "a document type is not allowed"),
        ("<lexicon>" + "<meta>" * 100_000, "at most 16 nested elements are allowed"),
    ],
)
def test_a_fault_of_a_pls_document_is_refused_with_its_line(
    tmp_path: Path, document: str, message: str
) -> None:
    with pytest.raises(BadLexicon, match=r"a\.pls.*" + message):
        read_lexicon(write(tmp_path / "a.pls", document))


def test_a_folder_is_one_lexicon_and_later_files_override(tmp_path: Path) -> None:
    write(tmp_path / "a.pls", PLS)
    write(tmp_path / "b.toml", '[words]\nNewton = "Nooton"\n')
    write(tmp_path / "notes.txt", "not a lexicon")
    entries = read_lexicon(tmp_path).entries
    assert entries["Newton"] == Pronunciation("Nooton")
    assert len(entries) == 4
    with pytest.raises(BadLexicon, match="no file that ends in"):
        read_lexicon(tmp_path.joinpath("empty") if (tmp_path / "empty").mkdir() else tmp_path / "empty")
    with pytest.raises(BadLexicon, match="cannot be read"):
        read_lexicon(tmp_path / "missing.toml")


def test_a_changed_file_is_read_again_and_a_broken_one_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "a.toml", '[words]\nnginx = "engine x"\n')
    lexicon = LexiconFile(path)

    def said() -> Pronunciation:
        lexicon.current()
        lexicon.wait_read()
        return lexicon.current().entries["nginx"]

    assert lexicon.current() is lexicon.current()
    write(path, '[words]\nnginx = "en jinks"\n')
    assert said() == Pronunciation("en jinks")
    write(path, "[words\n")
    with caplog.at_level(logging.ERROR):
        assert [said() for _ in range(3)] == [Pronunciation("en jinks")] * 3
        os.remove(path)
        assert [said() for _ in range(3)] == [Pronunciation("en jinks")] * 3
    messages = [record.getMessage() for record in caplog.records]
    assert [message.partition(": /")[0] for message in messages] == ["The lexicon stays as it was"] * 2
