"""Normalisation for voices that take text: thirteen languages, and text in scripts without a grammar."""

import sys
from collections.abc import Iterable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivavoce.tts_engine.cosyvoice.generation_segmenter import GenerationPolicy, GenerationSegmenter
from vivavoce.tts_engine.errors import BadRequest, MissingExtra
from vivavoce.tts_engine.reading.languages.ja.kana_numbers import number_to_kana, numerals_to_kana
from vivavoce.tts_engine.reading.languages.mul import rules
from vivavoce.tts_engine.reading.languages.mul.rules import (
    LanguageGrammars,
    language_code,
)
from vivavoce.tts_engine.reading.languages.registry import LANGUAGES as READ_LANGUAGES
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment
from vivavoce.tts_engine.voice_kit.spoken_words import estimate_seconds, group_written_words

wetext = pytest.importorskip("wetext")
num2words = pytest.importorskip("num2words").num2words

MARKS = ("[laughter]", "<strong>", "</strong>", "[breath]")
LANGUAGES = LanguageGrammars.load()


def segments(parts: Iterable[str], language: str, marks: Iterable[str] = ()) -> list[Segment]:
    segmenter = GenerationSegmenter(clauses=LANGUAGES.clause_normalizer(language, marks))
    return [segment for part in parts for segment in segmenter.push(part)] + segmenter.flush()


def spoken(text: str, language: str, marks: Iterable[str] = ()) -> str:
    """Return the text of the segments with a bar between them."""
    return "|".join(segment.spoken for segment in segments([text], language, marks))


def pushed(text: str, language: str) -> list[str]:
    """Return the segments that are complete without a flush."""
    segmenter = GenerationSegmenter(clauses=LANGUAGES.clause_normalizer(language))
    return [segment.spoken for segment in segmenter.push(text)]


def rows(table: str) -> pytest.MarkDecorator:
    """Parametrize a test with rows "written -> said"."""
    split = [line.strip().split(" -> ") for line in table.strip().splitlines()]
    return pytest.mark.parametrize(("written", "said"), [(one, other) for one, other in split])


@rows("""
    Das kostet 1.234,50 €. -> Das kostet eintausendzweihundertvierunddreißig Euro und fünfzig Cent.
    Bestellung 4482-9917, 1999-2005 -> Bestellung vier vier acht zwei, neun neun eins sieben,\
|neunzehnhundertneunundneunzig bis zweitausendfünf.
    Die 1 oder die # -> Die eins oder die Raute.
    x = 5 und a+b=c -> ix gleich fünf und a plus be gleich ce.
    24/7 erreichbar, 1/2 -> vierundzwanzig sieben erreichbar,|einhalb.
    Ich habe 21 Äpfel und 1 Birne. -> Ich habe einundzwanzig Äpfel und eine Birne.
    Am 3. März 2026 um 14:30 Uhr -> Am dritten März zweitausendsechsundzwanzig um vierzehn Uhr dreißig.
    Heute ist der 3. März. -> Heute ist der dritte März.
    am 3. Tag, im 2. Stock -> am dritten Tag,|im zweiten Stock.
    Es war 1999. Danach -> Es war neunzehnhundertneunundneunzig.|Danach.
    3,14 % von 1.234.567 -> drei Komma eins vier Prozent von eine Million\
 zweihundertvierunddreißigtausendfünfhundertsiebenundsechzig.
    5 km, 1 Min., -5 °C -> fünf Kilometer,|eine Minute,|minus fünf Grad Celsius.
    3-5 Tage -> drei bis fünf Tage.
    Ihr Code ist: 0417. -> Ihr Code ist:|null vier eins sieben.
    Bestellung 48213 -> Bestellung vier acht zwei eins drei.
    Tel. 030 123456 -> Telefon null drei null, eins zwei drei vier fünf sechs.
    z.B. Dr. Müller, Nr. 7 -> zum Beispiel Doktor Müller,|Nummer sieben.
    Mail an anna@beispiel.de -> Mail an anna at beispiel Punkt de e.
    Siehe hilfe.beispiel.app/faq oder Dr.in Maier. -> Siehe hilfe Punkt beispiel Punkt app Schrägstrich faq\
 oder Doktor in Maier.
    Covid-19, A4 und 5G -> Covid neunzehn,|a vier und fünf ge.
    Version 2.1.3 -> Version zwei Punkt eins Punkt drei.
    Version 2.05.10 -> Version zwei Punkt null fünf Punkt zehn.
    Wie geht's der Straßenbahn-Linie? -> Wie geht's der Straßenbahn-Linie?
    **Fett** und `Kode` -> Fett und Kode.
    1. Stecker ziehen -> eins, Stecker ziehen.
    2026-03-05 -> fünfter März zweitausendsechsundzwanzig.
    am 24.12. oder 31.12.2025 -> am vierundzwanzigsten Dezember oder einunddreißigster Dezember\
 zweitausendfünfundzwanzig.
    in der 2. Klasse der 1. Etage -> in der zweiten Klasse der ersten Etage.
    in der Goethestr. 5. Das ist Max. -> in der Goethestraße fünf. Das ist Max.
    ½ Liter, 100 m² -> einhalb Liter,|einhundert Quadratmeter.
    +49 30 1234567 -> plus vier neun, drei null, eins zwei drei vier fünf sechs sieben.
""")
def test_german_is_read_by_its_table(written: str, said: str) -> None:
    assert spoken(written, "de") == said


@rows("""
    Il est 14h30, c'est 2,50 €. -> Il est quatorze heures trente,|c'est deux euros et cinquante centimes.
    Le 1er mars 2026, la 2e fois -> Le premier mars deux mille vingt-six,|la deuxième fois.
    80 personnes, 71 ans -> quatre-vingts personnes,|soixante-et-onze ans.
    Appelez le 06 12 34 56 78. -> Appelez le zéro six, douze, trente-quatre, cinquante-six, soixante-dix-huit.
    M. Dupont n'est pas là, peut-être. -> monsieur Dupont n'est pas là,|peut-être.
    1 234 567 habitants à 5 km -> un million deux cent trente-quatre mille cinq cent soixante-sept habitants\
 à cinq kilomètres.
    code 0417 -> code zéro quatre un sept.
    L'article L. 221-18, la taille M. -> L'article elle deux cent vingt-et-un dix-huit,|la taille emme.
    12 €/m², CHF 5.50 -> douze euros le mètre carré,|cinq francs et cinquante centimes.
    un délai de 1 h, 10/12 min -> un délai d' une heure,|dix à douze minutes.
""")
def test_french_is_read_by_its_table(written: str, said: str) -> None:
    assert spoken(written, "fr") == said


@rows("""
    ¿Cómo estás? ¡Bien! -> ¿Cómo estás?|¡Bien!
    Son las 14:30, cuesta 3,50 €. -> Son las catorce treinta,|cuesta tres euros con cincuenta céntimos.
    El 1 de mayo hay 21 personas. -> El uno de mayo hay veintiuna personas.
    La 1.ª vez, el 900 123 456 -> La primera vez,|el nueve cero cero, uno dos tres, cuatro cinco seis.
    1 hora y 31 horas -> una hora y treinta y una horas.
    El 3er piso, la 1ª vez -> El tercer piso,|la primera vez.
    El Sr. Pérez pagó $1.200 por 1 kg. -> El señor Pérez pagó mil doscientos dólares por un kilo.
""")
def test_spanish_is_read_by_its_table(written: str, said: str) -> None:
    assert spoken(written, "es") == said


@rows("""
    Sono le 8:05, costa 1,50 €. -> Sono le otto e zero cinque,|costa un euro e cinquanta centesimi.
    Il 1 maggio 2026 il Sig. Rossi ha 2 anni. -> Il primo maggio duemilaventisei il signor Rossi ha due anni.
    L'ora è questa, 1 h. -> L'ora è questa,|un' ora.
    dall'8 marzo, il dott. Rossi -> dall' otto marzo,|il dottor Rossi.
    Via XX Settembre 5-7 -> Via venti Settembre cinque sette.
    È 1 studente su 4, la 1ª B -> È uno studente su quattro,|la prima bi.
""")
def test_italian_is_read_by_its_table(written: str, said: str) -> None:
    assert spoken(written, "it") == said


@rows("""
    21 рубль, 2 минуты, 5 км -> двадцать один рубль,|две минуты,|пять километров.
    Цена 1234,50 руб. -> Цена одна тысяча двести тридцать четыре рубля пятьдесят копеек.
    3 марта 2026 года, 5-й этаж -> третьего марта две тысячи двадцать шестого года,|пятый этаж.
    Код: 0417, т.е. такой -> Код:|ноль четыре один семь,|то есть такой.
    Скидка 1%, 2% и 50% -> Скидка один процент,|два процента и пятьдесят процентов.
    В 2026 г. было 5 г. -> В две тысячи двадцать шестом году было пять граммов.
    8-800-555-35-35 -> восемь, восемь ноль ноль, пять пять пять, три пять, три пять.
    8 (495) 123-45-67, №5 -> восемь, четыре девять пять, один два три, четыре пять, шесть семь,|номер пять.
""")
def test_russian_is_read_by_its_table(written: str, said: str) -> None:
    assert spoken(written, "ru") == said


@rows("""
    지금 14:30입니다. -> 지금 십사 시 삼십 분입니다.
    1588-1234로 전화 주세요. -> 일오팔팔, 일이삼사로 전화 주세요.
    사과 3개와 21명, 3시 30분 -> 사과 세 개와 스물한 명,|세 시 삼십분.
    가격은 1,234원입니다. -> 가격은 천이백삼십사원입니다.
    인증번호는 0417입니다. -> 인증번호는 공사일칠입니다.
    010-1234-5678로 전화 주세요. -> 공일공, 일이삼사, 오육칠팔로 전화 주세요.
    anna@example.com으로 보내 주세요. -> anna 골뱅이 example 점 com 으로 보내 주세요.
    6월 10일, 제3장, 2.5kg -> 유월 십일,|제삼장,|이 점 오 킬로그램.
""")
def test_korean_is_read_by_its_table(written: str, said: str) -> None:
    assert spoken(written, "ko") == said


@rows("""
    现在是2024年3月5日下午3:30，好。 -> 现在是二零二四年三月五日下午三点三十分，|好。
    价格是¥128.50元 -> 价格是一百二十八点五零元。
    温度-5°C，占比50% -> 温度负五摄氏度，|占比百分之五十。
    电话13812345678。 -> 电话幺三八，幺二三四，五六七八。
    请拨打400-820-8820 -> 请拨打四零零，八二零，八八二零。
    您的验证码是：0417。 -> 您的验证码是：|零四幺七。
    订单48213 -> 订单四八二幺三。
    GPT-4和iPhone 15都很好！ -> GPT四和iPhone十五都很好！
    你好,world,好 -> 你好，|world,|好。
    我有 3 个 apple -> 我有三个apple.
    3-5天，1/2的人 -> 三到五天，|二分之一的人。
    他说：“你好！”然后走了 -> 他说：|你好！|然后走了。
    苹果、香蕉；梨 -> 苹果、|香蕉；|梨。
    发邮件到anna@example.cn -> 发邮件到anna艾特example点cn.
    请看example.app/faq的帮助 -> 请看example点app斜杠faq的帮助。
    ３个￥５ -> 三个五元。
    速度5km/h，5G，v2.1，PM2.5 -> 速度每小时五公里，|五G，|v二点一，|PM二点五。
    192.168.1.1，¥1万，$3亿 -> 幺九二点幺六八点一点一，|一万元，|三亿美元。
    订单4482-9917，按1或#键 -> 订单四四八二，九九幺七，|按一或井号键。
    19.99元/月 -> 十九点九九元每月。
    10〜15天 -> 十到十五天。
    12345678901234567890 -> 幺二三四，五六七八，九零幺二，三四五六，七八九零。
""")
def test_chinese_numbers_are_read_and_codes_are_spelled(written: str, said: str) -> None:
    assert spoken(written, "zh") == said


@rows("""
    今日は2024年3月5日です。1,234円です。 -> 今日はニセンニジュウヨネンサンガツイツカです。\
|センニヒャクサンジュウヨンエンです。
    午後3時30分に、3つ -> ゴゴサンジサンジュップンに、|ミッツ。
    24時間365日、1日3回 -> ニジュウヨジカンサンビャクロクジュウゴニチ、|イチニチサンカイ。
    4月1日に2人で -> シガツツイタチにフタリで。
    10〜15分、-5度、3.5キロ -> ジュウからジュウゴフン、|マイナスゴド、|サンテンゴキロ。
    100万円か¥1万か¥1,280 -> ヒャクマンエンかイチマンエンかセンニヒャクハチジュウエン。
    港区1-2-3の第3回 -> 港区イチノニノサンのダイサンカイ。
    03-1234-5678か -> ゼロサン、イチニサンヨン、ゴロクナナハチか。
    0120-123-456 -> ゼロイチニゼロ、イチニサン、ヨンゴロク。
    30°Cで1/2 -> サンジュウドでニブンノイチ。
    暗証番号は0417です -> 暗証番号はゼロヨンイチナナです。
    シャーロット・ホームズ -> シャーロットホームズ。
    〒100-0001 -> イチゼロゼロ、ゼロゼロゼロイチ。
    090-1234-5678 -> ゼロキュウゼロ、イチニサンヨン、ゴロクナナハチ。
    ﾊﾟﾝが 東京 -> パンが東京。
""")
def test_japanese_numbers_and_counters_become_katakana(written: str, said: str) -> None:
    assert spoken(written, "ja") == said


@given(st.integers(0, 10**12 - 1))
def test_japanese_numbers_equal_those_of_num2words(number: int) -> None:
    hiragana = num2words(number, lang="ja", reading=True)
    katakana = "".join(chr(ord(one) + 0x60) if "ぁ" <= one <= "ゖ" else one for one in hiragana)
    assert number_to_kana(number) == katakana
    assert numerals_to_kana(num2words(number, lang="ja")) == katakana


@rows("""
    一個 六個 八個 十個 百個 三個 -> イッコ ロッコ ハッコ ジュッコ ヒャッコ サンコ
    一歳 六歳 八歳 二十歳 -> イッサイ ロクサイ ハッサイ ニジュッサイ
    一分 二分 三分 四分 六分 八分 十分 -> イップン ニフン サンプン ヨンプン ロップン ハップン ジュップン
    一本 三本 四本 六本 百本 千本 -> イッポン サンボン ヨンホン ロッポン ヒャッポン センボン
    三階 四階 六階 -> サンガイ ヨンカイ ロッカイ
    四月 七月 九月 十月 -> シガツ シチガツ クガツ ジュウガツ
    四時 七時 九時 十四時 〇時 -> ヨジ シチジ クジ ジュウヨジ レイジ
    四年 七年 四人 一人 十一人 -> ヨネン ナナネン ヨニン ヒトリ ジュウイチニン
    八日 十四日 二十日 二十一日 三日間 -> ヨウカ ジュウヨッカ ハツカ ニジュウイチニチ ミッカカン
    〇点五 一点五倍 八点〇一 -> レイテンゴ イッテンゴバイ ハッテンゼロイチ
    三ヶ月 一週間 九つ -> サンカゲツ イッシュウカン ココノツ
""")
def test_japanese_numbers_and_counters_change_each_others_sound(written: str, said: str) -> None:
    assert numerals_to_kana(written) == said


@rows("""
    My API v2.1 costs $5. -> My A P I version two point one costs five dollars.
    Sean has a live chat. -> Sean has a live chat.
    Plan A, I said. -> Plan A,|I said.
""")
def test_english_for_a_voice_that_takes_text_is_not_respelled(written: str, said: str) -> None:
    assert spoken(written, "en") == said


@rows("""
    你好，3个。 -> 你好，|三个。
    Привет, 5 рублей. -> Привет,|пять рублей.
    안녕하세요 3개. -> 안녕하세요 세 개.
    これは 3。 -> これはサン。
    Your code: 5. -> Your code:|five.
    नमस्ते 5 लोग। अच्छा -> नमस्ते 5 लोग.|अच्छा.
    مرحبا 5، نعم؟ -> مرحبا 5,|نعم?
    สวัสดีครับ 3 คน -> สวัสดีครับ 3 คน.
""")
def test_a_clause_is_read_in_the_language_of_its_script(written: str, said: str) -> None:
    assert spoken(written, "en") == said


def test_digits_alone_are_read_in_the_language_of_the_clause_before() -> None:
    assert spoken("验证码是：\n4417", "en") == "验证码是：||四四幺七。"
    assert spoken("5", "de") == "fünf."


def test_han_is_japanese_in_a_japanese_voice_and_after_kana() -> None:
    assert spoken("東京0120", "ja") == "東京ゼロイチニゼロ。"
    assert spoken("これだ。東京0120", "en") == "これだ。|東京ゼロイチニゼロ。"
    assert spoken("東京0120", "en") == "東京零幺二零。"


# Without "zero", "six" and "point", which are Italian and French too.
ENGLISH_DIGITS = {"one", "two", "three", "four", "five", "seven", "eight", "nine"}


@settings(deadline=None)
@given(st.sampled_from(["de", "fr", "es", "it"]), st.text("0123456789.,:-/%€ ", max_size=20))
def test_no_number_is_read_in_english_inside_another_language(language: str, number: str) -> None:
    said = spoken(f"la {number} la", language).replace("|", " ")
    assert not ENGLISH_DIGITS & set(said.replace(",", " ").replace(".", " ").split())
    assert not any(character.isdigit() for character in said)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["de", "fr", "es", "it", "ru", "ko"]), st.integers(0, 999))
def test_number_words_equal_those_of_num2words(language: str, number: int) -> None:
    ours = spoken(f"{number}", language).rstrip(".")
    if language == "it":  # num2words leaves out an accent and an i
        ours = ours.replace("é", "e").replace("diciotto", "dicotto") if number > 100 else ours
    assert without_separators(ours) == without_separators(num2words(number, lang=language))


def without_separators(words: str) -> str:
    return words.replace(" ", "").replace("-", "").replace("é", "e")


@pytest.mark.parametrize(
    "text", ["三点一四", "2024年3月5日", "3.14个", "10:05:30", "50%", "2.5kg", "¥5", "第3章", "1/2"]
)
def test_chinese_numbers_equal_those_of_wetext(text: str) -> None:
    assert spoken(f"有{text}的", "zh") == wetext.Normalizer(lang="zh").normalize(f"有{text}的") + "。"


FRAGMENTS = {
    "de": "Hallo|, |. |! |? |: |\n|\n\n| |am |der |3|3.| März|1.234,50| €|14:30| Uhr|z.B.|Dr. "
    "|Nr. 5|0417|Code|ß",
    "fr": "Salut|, |. |! |? |\n| |le |1er| mars|1 234|,5| €|14h30|M. |p. ex. |l'|peut-être|06 12 34 56 78",
    "es": "Hola|, |. |¡|¿|! |? |\n| |el |3| de mayo|1.200|,5| €|14:30|Sr. |EE. UU. |5º|0417|código",
    "ru": "Привет|, |. |! |? |\n| |в |3| марта|1 234|,5| руб.|14:30|т.е. |г. |5-й|0417|код|й",
    "ko": "안녕|하세요|, |. |! |? |\n| |3|시| 30분|1,234|원|개|010-1234-5678|번호|는",
    "zh": "你好|我|，|。|！|？|：|；|、|,|.| |\n|2024年|3月|5日|3:30|¥|128.50|元|验证码|是|0417"
    "|-5|°C|50%|iPhone| 15|“|”|……|——",
    "ja": "こんにちは|です|、|。|！|？|：| |\n|東京|2024年|3月|1,234円|午後|3時|コード|0417|カー|ッ|「|」|・",
}
COMMON = (
    "a|API| and |, |. |$5|5|é|\u0301|😀|\u200d|\ud83d|مرحبا|\u202e|สวัสดี|नमस्ते|汉字|カナ|한글|<b>"
    "|[laughter]|<|endofprompt|>|*|# |- "
)
PARTS = {
    code: st.lists(st.sampled_from(f"{own}|{COMMON}".split("|")), max_size=24)
    for code, own in FRAGMENTS.items()
}
WRITTEN = st.sampled_from(sorted(PARTS)).flatmap(
    lambda code: st.tuples(st.just(code), PARTS[code].map("".join))
)


@settings(max_examples=300, deadline=None)
@given(WRITTEN, st.randoms(use_true_random=False))
def test_any_split_gives_the_same_segments(written: tuple[str, str], random: Random) -> None:
    language, text = written
    cuts = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(6)))
    parts = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
    assert segments(parts, language) == segments([text], language) == segments(text, language)
    assert segments(parts, language, MARKS) == segments([text], language, MARKS)


@settings(max_examples=200, deadline=None)
@given(WRITTEN)
def test_segments_follow_each_other_and_cover_their_words(written: tuple[str, str]) -> None:
    language, text = written
    found = segments([text], language)
    assert [one.start for one in found] == [0, *(one.stop for one in found)][: len(found)]
    words = [word for segment in found for word in segment.words]
    assert all(0 <= word.start < word.stop <= len(text) for word in words)
    assert all(one.start <= other.start for one, other in pairwise(words))
    for segment in found:
        assert all(segment.start <= word.start and word.stop <= segment.stop for word in segment.words)


@settings(max_examples=200, deadline=None)
@given(WRITTEN)
def test_segments_of_a_prefix_are_the_first_segments_of_the_whole_text(written: tuple[str, str]) -> None:
    language, text = written
    segmenter = GenerationSegmenter(clauses=LANGUAGES.clause_normalizer(language))
    early = [segment for character in text for segment in segmenter.push(character)]
    assert early == segments([text], language)[: len(early)]


@settings(max_examples=200, deadline=None)
@given(WRITTEN)
def test_segments_hold_no_special_tokens_of_a_model(written: tuple[str, str]) -> None:
    language, text = written
    whole = " ".join(segment.spoken for segment in segments([text], language))
    assert not any(mark in whole for mark in ("<", "[", "|", "]", ">"))


def test_marks_of_the_model_pass_if_they_are_allowed() -> None:
    text = "He said [laughter] and <strong>wow</strong> <|endofprompt|> [cough] ok."
    allowed = "He said [laughter] and <strong>wow</strong>, endofprompt, okay."
    assert spoken(text, "en", MARKS) == allowed
    assert spoken(text, "en") == "He said and wow, endofprompt, okay."
    assert (
        spoken("他[laughter]停，<strong>很</strong>好。", "zh", MARKS)
        == "他[laughter]停，|<strong>很</strong>好。"
    )


def test_every_character_of_chinese_is_a_word_of_its_own() -> None:
    text = "我们去。東京タワーへ"
    words = [word for segment in segments([text], "zh") for word in segment.words]
    assert [text[word.start : word.stop] for word in words] == [*"我们去東京", "タ", "ワー", "へ"]


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en", "It's $5, code 0417 A1B2 now", "It's $5 code 0417 A1B2 now"),
        (
            "en",
            "At 10:30 a.m. in the U.S. and 9 P.M. with Dr. J.R. Ewing, Ph.D. or 7a.m",
            "At 10:30 a.m. in the U.S. and 9 P.M. with Dr. J.R. Ewing Ph.D. or 7a.m",
        ),
        ("de", "z.B. am 3. März um 14:30 Uhr", "z.B. am 3 März um 14:30 Uhr"),
        ("ko", "사과 3개와 21명", "사과 3개와 21명"),
        ("zh", "尾号04的iPhone", "尾 号 0 4 的 iPhone"),
        ("th", "สวัสดีครับ 3 คน", "สวัสดีครับ 3 คน"),
    ],
)
def test_the_spoken_words_of_a_written_word_are_grouped(language: str, text: str, words: str) -> None:
    reader = "en" if language == "th" else language
    spoken = [word for segment in segments([text], reader) for word in segment.words]
    assert " ".join(text[word.start : word.stop] for word in group_written_words(spoken)) == words
    said = [place for word in group_written_words(spoken) for place in word.spoken_range]
    assert said == list(range(len(spoken)))


def test_a_chinese_number_is_one_word_with_the_range_of_its_characters() -> None:
    text = "共3.5元吧"
    ((segment,), word) = segments([text], "zh"), "三点五元"
    assert [(text[one.start : one.stop], one.text) for one in segment.words] == [
        ("共", "共"),
        ("3.5元", word),
        ("吧", "吧"),
    ]


@pytest.mark.parametrize(
    ("language", "text", "first"),
    [
        ("zh", "你好，", "你好，"),
        ("zh", "好。", "好。"),
        ("zh", "真的？", "真的？"),
        ("zh", "如下：", "如下："),
        ("zh", "你好,", "你好，"),
        ("zh", "有3个,我", "有三个，"),
        ("ja", "はい、", "はい、"),
        ("ko", "안녕하세요,", "안녕하세요,"),
        ("de", "Guten Tag,", "Guten Tag,"),
        ("de", "Es ist gut. ", "Es ist gut."),
        ("ru", "Привет,", "Привет,"),
    ],
)
def test_a_clause_is_returned_on_the_character_that_makes_its_boundary_safe(
    language: str, text: str, first: str
) -> None:
    assert pushed(text[:-1], language) == []
    assert pushed(text, language) == [first]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "am 3. März und"),
        ("de", "der 2. Stock ist"),
        ("de", "z.B. Berlin und"),
        ("de", "Dr. Müller kommt"),
        ("fr", "M. Dupont et"),
        ("es", "el Sr. Pérez y"),
        ("ru", "г. Москва и"),
        ("ru", "т. е. Москва"),
        ("zh", "价格1,234元"),
        ("zh", "时间3：30到"),
        ("zh", "版本3.5好"),
    ],
)
def test_a_reading_is_never_cut(language: str, text: str) -> None:
    assert pushed(text, language) == []


@pytest.mark.parametrize("language", ["zh", "ja"])
def test_text_without_marks_is_spoken_before_it_ends(language: str) -> None:
    """60 characters are about 14 s of speech; the stable part of them is returned."""
    first = pushed("很" * 60, language)
    assert len(first) == 1
    assert 30 < len(first[0].rstrip("。")) <= 40
    assert pushed("很" * 59, language) == []


@pytest.mark.parametrize("before", range(25, 62, 3))
def test_text_without_marks_is_not_cut_inside_a_number(before: int) -> None:
    said = "".join(segment.spoken for segment in segments(["很" * before + "2024年3月5日" + "好" * 60], "zh"))
    assert said.replace("。", "") == "很" * before + "二零二四年三月五日" + "好" * 60


def test_an_unknown_language_is_refused_and_aliases_are_known() -> None:
    with pytest.raises(
        BadRequest, match=r"language 'tlh': known are de, en, es, fr, it, ja, ko, nl, pl, pt, ru, tr, zh"
    ):
        LANGUAGES.clause_normalizer("tlh")
    assert [language_code(tag) for tag in ("de-AT", "zh_CN", "yue", "EN", "mul")] == [
        "de",
        "zh",
        "zh",
        "en",
        "en",
    ]


@pytest.mark.parametrize("code", ["zh", "ja"])
def test_a_missing_library_raises_the_pip_line_of_its_extra(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wetext", None)
    rules._compiled_grammar.cache_clear()
    with pytest.raises(MissingExtra, match=r"pip install .*\[cosyvoice\]"):
        LanguageGrammars.load([code])


def test_text_of_a_language_that_is_not_loaded_stays_as_written() -> None:
    segmenter = GenerationSegmenter(clauses=LanguageGrammars.load(["en"]).clause_normalizer("de"))
    assert [one.spoken for one in segmenter.push("Ich habe 5 Äpfel, ")] == ["Ich habe 5 Äpfel,"]


JUNK = [
    "漢",
    "あ",
    "가",
    "ส",
    "م",
    "é",
    "e\u0301",
    "a" + "\u0301" * 30,
    "😀",
    "👨\u200d👩",
    "\u202e",
    "\ud800",
    "1",
    "५",
]
JUNK += ["，", "。", "3元", "1：", "[a ", "<a", "a-", "1-", "a.b@", "ß ", "1.", "１", "…", "z.B. "]


@pytest.mark.parametrize("junk", JUNK)
def test_segments_of_a_long_text_without_boundaries_are_bounded(junk: str) -> None:
    text = (junk * 8000)[:8000]
    found = segments([text], "de")
    assert all(len(segment.spoken) < 600 for segment in found)
    assert found == segments((text[at : at + 7] for at in range(0, len(text), 7)), "de")


@settings(max_examples=200, deadline=None)
@given(WRITTEN)
def test_a_generation_is_bounded_and_ends_with_a_sentence(written: tuple[str, str]) -> None:
    language, text = written
    segmenter = GenerationSegmenter(GenerationPolicy(2.0, 3.0), LANGUAGES.clause_normalizer(language))
    said_s = 0.0
    found = segmenter.push(text * 3) + segmenter.flush()
    for segment in found:
        said_s += estimate_seconds(segment.words)
        assert said_s < 3.3 or len(segment.words) == 1
        if segment.ending in (BoundaryKind.SENTENCE, BoundaryKind.PARAGRAPH):
            said_s = 0.0
    assert said_s == 0.0
    assert all(
        segment.words or opener.ending in (BoundaryKind.CLAUSE, BoundaryKind.ELLIPSIS, BoundaryKind.FORCED)
        for opener, segment in pairwise(found)
    )


def test_the_language_codes_are_those_of_thirteen_languages() -> None:
    assert {language.code for language in READ_LANGUAGES} == set(
        "en zh ja ko de fr es it pt nl pl ru tr".split()
    )


def test_the_stop_of_an_abbreviation_that_is_read_without_one_too_is_no_pause() -> None:
    assert spoken("Nr tel. 22 555 40 10.", "pl").startswith("numer telefonu dwa dwa,")
    assert spoken("To mój tel.", "pl") == "To mój telefon."


def test_an_address_alone_is_read_in_the_language_of_the_text() -> None:
    assert "собака" in spoken("Пишите. info@site.ru.", "ru")
    assert " at " in spoken("Write to us. info@site.ru.", "ru")
