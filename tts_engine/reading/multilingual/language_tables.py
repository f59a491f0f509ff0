"""Units, money, months, marks: what languages other than English and Chinese call numbers' companions.

Tables only; ``tabled.py`` reads with them. A noun is written "gender form|form|...": m, f and n choose the
form of the number before it (un euro, una hora), "k" a native Korean number, "h" one up to 12; the forms are
singular and plural, in Russian for 1, 2 and 5.
Source: Unicode CLDR 44 (units, currencies, months); everyday usage for abbreviations and announcers of codes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..clause_boundaries import BoundaryRules
from ..english.vocabulary import AbbreviationKind


@dataclass(frozen=True, slots=True)
class LanguageTable:
    """One language.

    grouping: characters between thousands. plural: which form of a noun follows a number. clock: how hours
    and minutes are said; ``whole_hour_template`` when there are none. agreeing: the gender of a number before a word
    with such an end. date: ``{day} {month}
    {year}``. day, year: rule sets of their numbers. suffixes: what a number with this written after it is,
    a rule set. abbreviations: what they are said as.
    """

    code: str
    thousands_separators: str
    decimal: str
    decimal_word: str
    minus_word: str
    percent_word: str
    money_conjunction: str
    range_word: str
    time_template: str
    whole_hour_template: str
    hour_noun: str
    minute_zero_word: str
    months: tuple[str, ...]
    date_template: str
    units: Mapping[str, str]
    money: Mapping[str, tuple[str, str]]
    marks: Mapping[str, str]
    code_words: frozenset[str]
    abbreviations: Mapping[str, str] = field(default_factory=dict)
    mid_sentence_words: frozenset[str] = frozenset()
    suffixes: Mapping[str, str] = field(default_factory=dict)
    number_rules: str = "spellout-numbering"
    day: str = "spellout-numbering"
    year: str = "spellout-numbering"
    gender_by_ending: Mapping[str, str] = field(default_factory=dict)
    first_day_word: str = ""
    zero_digit: str = ""
    plural: Callable[[int], int] = lambda number: 0 if number == 1 else 1
    decimal_form: int = 1  # the form after a decimal

    @property
    def boundary_rules(self) -> BoundaryRules:
        """Where its full stops end nothing."""
        words = {*self.abbreviations, *self.mid_sentence_words}
        return BoundaryRules(
            dict.fromkeys(words, AbbreviationKind.MID_SENTENCE),
            frozenset(),
            AbbreviationKind.MID_SENTENCE,
            self.code == "de",
        )


def _parse_words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _parse_pairs(text: str) -> dict[str, str]:
    """ "km=m Kilometer; h=f Stunde|Stunden" as a table."""
    return {name.strip(): said for name, _, said in (row.partition("=") for row in text.split(";"))}


def _parse_money(text: str) -> dict[str, tuple[str, str]]:
    """ "€ EUR=m Euro/m Cent; ..." as a table; no second noun: no smaller coin."""
    table: dict[str, tuple[str, str]] = {}
    for names, said in _parse_pairs(" ".join(text.split())).items():
        large, _, small = said.partition("/")
        table |= dict.fromkeys(names.split(), (large, small))
    return table


def _russian_plural(number: int) -> int:
    if number % 10 == 1 and number % 100 != 11:
        return 0
    return 1 if number % 10 in (2, 3, 4) and number % 100 not in (12, 13, 14) else 2


GERMAN = LanguageTable(
    code="de",
    thousands_separators=".'",
    decimal=",",
    decimal_word="Komma",
    minus_word="minus",
    percent_word="Prozent",
    money_conjunction="und",
    range_word="bis",
    time_template="{hour} Uhr {minute}",
    whole_hour_template="{hour} Uhr",
    hour_noun="m ",
    minute_zero_word="",
    months=_parse_words("Januar Februar März April Mai Juni Juli August September Oktober November Dezember"),
    date_template="{day} {month} {year}",
    day="spellout-ordinal-r",
    year="spellout-numbering-year",
    units=_parse_pairs(
        "km=m Kilometer;m=m Meter;cm=m Zentimeter;mm=m Millimeter;km/h=m Kilometer pro Stunde"
        ";kg=n Kilogramm"
        ";g=n Gramm;mg=n Milligramm;l=m Liter;L=m Liter;ml=m Milliliter;°C=n Grad Celsius;°=n Grad"
        ";GB=n Gigabyte;MB=n Megabyte;TB=n Terabyte;Std.=f Stunde|Stunden;Min.=f Minute|Minuten"
        ";Mio.=f Million|Millionen;Mrd.=f Milliarde|Milliarden;m^2=m Quadratmeter;Uhr=m Uhr"
    ),
    money=_parse_money("""€ EUR Euro=m Euro/m Cent; $ USD=m Dollar/m Cent; £ GBP=n Pfund/n Pence; ¥ JPY=m Yen;
        CHF=m Franken/m Rappen"""),
    marks=_parse_pairs(
        "@=at;.=Punkt;-=Bindestrich;_=Unterstrich;/=Schrägstrich;+=plus;&=und;==gleich;§=Paragraf;#=Raute"
        ";%=Prozent;€=Euro;$=Dollar;°=Grad;×=mal;÷=durch"
    ),
    code_words=frozenset(
        "code pin puk tan passwort kennwort kundennummer bestellnummer auftragsnummer "
        "rechnungsnummer nummer "
        "kontonummer vorgangsnummer bestätigungscode zugangscode durchwahl telefonnummer "
        "postleitzahl plz iban "
        "rufnummer nr ticketnummer sendungsnummer".split()
    ),
    abbreviations=_parse_pairs(
        "Dr=Doktor;Prof=Professor;Hr=Herr;Fr=Frau;Nr=Nummer;Str=Straße;bzw=beziehungsweise;ca=circa"
        ";usw=und so weiter"
        ";inkl=inklusive;zzgl=zuzüglich;evtl=eventuell;ggf=gegebenenfalls;vgl=vergleiche;Tel=Telefon"
        ";St=Sankt"
        ";z.B=zum Beispiel;z. B=zum Beispiel;d.h=das heißt;d. h=das heißt;u.a=unter anderem"
        ";u. a=unter anderem"
        ";Abs=Absatz;Art=Artikel;Mio=Millionen;Mrd=Milliarden;max=maximal;min=minimal;Jan=Januar"
        ";Feb=Februar"
        ";Aug=August;Sept=September;Okt=Oktober;Nov=November;Dez=Dezember"
    ),
    mid_sentence_words=frozenset(_parse_words("z d u o Std Min")),
)
# How German ordinals end after these words: a rule set's ending.
GERMAN_ORDINAL_ENDINGS = {
    **dict.fromkeys("der die das eine jeder jede jedes".split(), ""),
    **dict.fromkeys("den dem des am im vom zum beim zur bis ab".split(), "-n"),
    **dict.fromkeys("seit".split(), "-m"),
    **dict.fromkeys("ein mein ihr".split(), "-r"),
}
FRENCH = LanguageTable(
    code="fr",
    thousands_separators=" .",
    decimal=",",
    decimal_word="virgule",
    minus_word="moins",
    percent_word="pour cent",
    money_conjunction="et",
    range_word="à",
    time_template="{hour} {minute}",
    whole_hour_template="{hour}",
    hour_noun="f heure|heures",
    minute_zero_word="",
    months=_parse_words(
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
    ),
    date_template="{day} {month} {year}",
    first_day_word="premier",
    units=_parse_pairs(
        "km=m kilomètre|kilomètres;m=m mètre|mètres;cm=m centimètre|centimètres;mm=m millimètre|millimètres"
        ";km/h=m kilomètre heure|kilomètres heure;kg=m kilo|kilos;g=m gramme|grammes;l=m litre|litres"
        ";L=m litre|litres;ml=m millilitre|millilitres;°C=m degré Celsius|degrés Celsius;°=m degré|degrés"
        ";Go=m giga|gigas;Mo=m méga|mégas;min=f minute|minutes;h=f heure|heures"
        ";m^2=m mètre carré|mètres carrés"
    ),
    money=_parse_money("""€ EUR euros euro=m euro|euros/m centime|centimes; $ USD=m dollar|dollars/m cent|cents;
        £ GBP=f livre|livres/m penny|pence; ¥ JPY=m yen|yens; CHF=m franc|francs/m centime|centimes"""),
    marks=_parse_pairs(
        "@=arobase;.=point;-=tiret;_=tiret bas;/=slash;+=plus;&=et;==égale;§=paragraphe;#=dièse;%=pour cent"
        ";€=euros;$=dollars;°=degrés;×=fois;÷=sur"
    ),
    code_words=frozenset(
        "code pin mot passe numéro référence commande dossier compte téléphone postal iban "
        "réservation".split()
    ),
    abbreviations=_parse_pairs(
        "M=monsieur;Mme=madame;Mlle=mademoiselle;Dr=docteur;n°=numéro;N°=numéro;av=avenue;bd=boulevard"
        ";etc=et cetera"
        ";tél=téléphone;env=environ;p. ex=par exemple;c.-à-d=c'est-à-dire;St=saint;Ste=sainte;max=maximum"
    ),
    mid_sentence_words=frozenset(_parse_words("p c")),
    suffixes={
        "er": "spellout-ordinal-masculine",
        "re": "spellout-ordinal-feminine",
        "ère": "spellout-ordinal-feminine",
        "e": "spellout-ordinal-masculine",
        "ème": "spellout-ordinal-masculine",
    },
    plural=lambda number: 0 if number < 2 else 1,
)
SPANISH = LanguageTable(
    code="es",
    thousands_separators=".",
    decimal=",",
    decimal_word="coma",
    minus_word="menos",
    percent_word="por ciento",
    money_conjunction="con",
    range_word="a",
    time_template="{hour} {minute}",
    whole_hour_template="{hour} en punto",
    hour_noun="f ",
    minute_zero_word="cero",
    months=_parse_words(
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
    ),
    date_template="{day} de {month} de {year}",
    units=_parse_pairs(
        "km=m kilómetro|kilómetros;m=m metro|metros;cm=m centímetro|centímetros;mm=m milímetro|milímetros"
        ";km/h=m kilómetro por hora|kilómetros por hora;kg=m kilo|kilos;g=m gramo|gramos;l=m litro|litros"
        ";L=m litro|litros;ml=m mililitro|mililitros;°C=m grado Celsius|grados Celsius;°=m grado|grados"
        ";GB=m giga|gigas;MB=m mega|megas;min=m minuto|minutos;h=f hora|horas"
        ";m^2=m metro cuadrado|metros cuadrados"
    ),
    money=_parse_money("""€ EUR euros euro=m euro|euros/m céntimo|céntimos;
        $ USD dólares=m dólar|dólares/m centavo|centavos;
        £ GBP=f libra|libras/m penique|peniques; ¥ JPY=m yen|yenes"""),
    marks=_parse_pairs(
        "@=arroba;.=punto;-=guion;_=guion bajo;/=barra;+=más;&=y;==igual a;§=párrafo;#=almohadilla"
        ";%=por ciento"
        ";€=euros;$=dólares;°=grados;×=por;÷=sobre"
    ),
    code_words=frozenset(
        "código pin clave contraseña número referencia pedido cuenta teléfono postal iban reserva".split()
    ),
    abbreviations=_parse_pairs(
        "Sr=señor;Sra=señora;Srta=señorita;Dr=doctor;Dra=doctora;núm=número;Núm=número;n.º=número"
        ";nº=número;Nº=número"
        ";Av=avenida;Avda=avenida;C/=calle;etc=etcétera;aprox=aproximadamente;tel=teléfono;Tel=teléfono"
        ";p. ej=por ejemplo;Ud=usted;Uds=ustedes;máx=máximo;mín=mínimo;EE. UU=Estados Unidos"
    ),
    mid_sentence_words=frozenset(_parse_words("p ej EE UU")),
    suffixes={
        "º": "spellout-ordinal-masculine",
        "°": "spellout-ordinal-masculine",
        "ª": "spellout-ordinal-feminine",
        ".º": "spellout-ordinal-masculine",
        ".ª": "spellout-ordinal-feminine",
        "er": "spellout-ordinal-masculine-adjective",
    },
    gender_by_ending={"as": "f", "os": "m", "es": "m", "a": "f", "o": "m"},
)
ITALIAN = LanguageTable(
    code="it",
    thousands_separators=".",
    decimal=",",
    decimal_word="virgola",
    minus_word="meno",
    percent_word="per cento",
    money_conjunction="e",
    range_word="a",
    time_template="{hour} e {minute}",
    whole_hour_template="{hour}",
    hour_noun="f ",
    minute_zero_word="zero",
    months=_parse_words(
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre"
    ),
    date_template="{day} {month} {year}",
    first_day_word="primo",
    units=_parse_pairs(
        "km=m chilometro|chilometri;m=m metro|metri;cm=m centimetro|centimetri;mm=m millimetro|millimetri"
        ";km/h=m chilometro orario|chilometri orari;kg=m chilo|chili;g=m grammo|grammi;l=m litro|litri"
        ";L=m litro|litri;ml=m millilitro|millilitri;°C=m grado Celsius|gradi Celsius;°=m grado|gradi"
        ";GB=m giga;MB=m mega;min=m minuto|minuti;h=f ora|ore;m^2=m metro quadrato|metri quadrati"
    ),
    money=_parse_money("""€ EUR euro=m euro/m centesimo|centesimi;
        $ USD dollari=m dollaro|dollari/m centesimo|centesimi;
        £ GBP=f sterlina|sterline/m penny|pence; ¥ JPY=m yen"""),
    marks=_parse_pairs(
        "@=chiocciola;.=punto;-=trattino;_=trattino basso;/=barra;+=più;&=e;==uguale;§=paragrafo"
        ";#=cancelletto"
        ";%=per cento;€=euro;$=dollari;°=gradi;×=per;÷=su"
    ),
    code_words=frozenset(
        "codice pin password numero ordine conto telefono riferimento iban cap prenotazione pratica".split()
    ),
    abbreviations=_parse_pairs(
        "Sig=signor;Sig.ra=signora;Sigg=signori;Dott=dottor;dott=dottor;Dott.ssa=dottoressa;Prof=professor;n=numero"
        ";ecc=eccetera"
        ";tel=telefono;Tel=telefono;ca=circa;es=esempio;Avv=avvocato;Ing=ingegner;max=massimo;pag=pagina"
    ),
    suffixes={
        "º": "spellout-ordinal-masculine",
        "°": "spellout-ordinal-masculine",
        "ª": "spellout-ordinal-feminine",
    },
)
RUSSIAN = LanguageTable(
    code="ru",
    thousands_separators=" ",
    decimal=",",
    decimal_word="запятая",
    minus_word="минус",
    percent_word="m процент|процента|процентов",
    money_conjunction="",
    range_word="до",
    time_template="{hour} {minute}",
    whole_hour_template="{hour} ноль ноль",
    hour_noun="m ",
    minute_zero_word="ноль",
    months=_parse_words("января февраля марта апреля мая июня июля августа сентября октября ноября декабря"),
    date_template="{day} {month} {year} года",
    day="spellout-ordinal-neuter-genitive",
    year="spellout-ordinal-masculine-genitive",
    units=_parse_pairs(
        "км=m километр|километра|километров;м=m метр|метра|метров;см=m сантиметр|сантиметра|сантиметров"
        ";мм=m миллиметр|миллиметра|миллиметров;км/ч=m километр в час|километра в час|километров в час"
        ";кг=m килограмм|килограмма|килограммов;г=m грамм|грамма|граммов;л=m литр|литра|литров"
        ";мл=m миллилитр|миллилитра|миллилитров;°C=m градус Цельсия|градуса Цельсия|градусов Цельсия"
        ";°=m градус|градуса|градусов;мин=f минута|минуты|минут;ч=m час|часа|часов"
        ";сек=f секунда|секунды|секунд"
        ";ГБ=m гигабайт|гигабайта|гигабайт;МБ=m мегабайт|мегабайта|мегабайт;тыс.=f тысяча|тысячи|тысяч"
        ";млн=m миллион|миллиона|миллионов;млрд=m миллиард|миллиарда|миллиардов"
        ";минута=f минута;минуты=f минута|минуты|минут;минут=f минута|минуты|минут;минуту=f минуту"
        ";тысяча=f тысяча;тысячи=f тысяча|тысячи|тысяч;тысяч=f тысяча|тысячи|тысяч"
    ),
    money=_parse_money("""₽ руб. руб RUB=m рубль|рубля|рублей/f копейка|копейки|копеек;
        $ USD=m доллар|доллара|долларов/m цент|цента|центов;
        € EUR=m евро/m цент|цента|центов; £ GBP=m фунт|фунта|фунтов/m пенс|пенса|пенсов;
        ¥ JPY=f иена|иены|иен"""),
    marks=_parse_pairs(
        "@=собака;.=точка;-=дефис;_=подчёркивание;/=слэш;+=плюс;&=и;==равно;§=параграф;#=решётка;№=номер"
        ";%=процентов;€=евро;$=долларов;₽=рублей;°=градусов;×=на;÷=на"
    ),
    code_words=frozenset(
        "код пин пин-код пароль номер номером номера заказ заказа счёт счета телефон индекс инн "
        "заявка заявки".split()
    ),
    abbreviations=_parse_pairs(
        "г=года;гг=годы;Тел=телефон;ул=улица;д=дом;кв=квартира;стр=страница;т.е=то есть"
        ";т. е=то есть;т.д=так далее"
        ";т. д=так далее;т.п=тому подобное;т. п=тому подобное;т.к=так как;т. к=так как;др=другие"
        ";тел=телефон"
        ";им=имени;проф=профессор;см=смотри;напр=например;руб=рублей;коп=копеек;тыс=тысяч"
    ),
    mid_sentence_words=frozenset(_parse_words("т")),
    suffixes={
        "-й": "spellout-ordinal-masculine",
        "-ый": "spellout-ordinal-masculine",
        "-я": "spellout-ordinal-feminine",
        "-е": "spellout-ordinal-neuter",
        "-го": "spellout-ordinal-masculine-genitive",
        "-му": "spellout-ordinal-masculine-dative",
        "-м": "spellout-ordinal-masculine-locative",
        "-ю": "spellout-ordinal-feminine-accusative",
        " г.": "spellout-ordinal-masculine-genitive",
        " год": "spellout-ordinal-masculine",
        " года": "spellout-ordinal-masculine-genitive",
        " году": "spellout-ordinal-masculine-locative",
    },
    plural=_russian_plural,
)
KOREAN = LanguageTable(
    code="ko",
    thousands_separators=",",
    decimal=".",
    decimal_word="점",
    minus_word="마이너스",
    percent_word="퍼센트",
    money_conjunction="",
    range_word="에서",
    time_template="{hour} 시 {minute} 분",
    whole_hour_template="{hour} 시",
    hour_noun="h ",
    minute_zero_word="",
    months=tuple(f"{name}월" for name in _parse_words("일 이 삼 사 오 유 칠 팔 구 시 십일 십이")),
    date_template="{year}년 {month} {day}일",
    number_rules="spellout-cardinal-sinokorean",
    day="spellout-cardinal-sinokorean",
    year="spellout-cardinal-sinokorean",
    units=_parse_pairs(
        "km= 킬로미터;m= 미터;cm= 센티미터;mm= 밀리미터;km/h= 킬로미터;kg= 킬로그램;g= 그램"
        ";l= 리터;L= 리터;ml= 밀리리터"
        ";°C= 도;°= 도;GB= 기가바이트;MB= 메가바이트;시간=k 시간;시=h 시;개월= 개월;개=k 개"
        ";명=k 명;살=k 살;마리=k 마리"
        ";권=k 권;잔=k 잔;병=k 병;대=k 대;번째=k 번째;사람=k 사람;가지=k 가지;장=k 장;송이=k 송이;벌=k 벌"
    ),
    money=_parse_money("""₩ KRW= 원; $ USD= 달러/ 센트; € EUR= 유로/ 센트; ¥ JPY= 엔; £ GBP= 파운드/ 펜스"""),
    marks=_parse_pairs(
        "@=골뱅이;.=점;-=하이픈;_=밑줄;/=슬래시;+=플러스;&=앤드;==은;§=조;#=샵;%=퍼센트;€=유로"
        ";$=달러;₩=원;°=도;×=곱하기;÷=나누기"
    ),
    code_words=frozenset(
        "번호는 번호 코드는 코드 인증번호는 인증번호 비밀번호는 비밀번호 "
        "주문번호는 주문번호 전화번호는 전화번호 핀".split()
    ),
    zero_digit="공",
    plural=lambda number: 0,
    decimal_form=0,
)
TABLES = {language.code: language for language in (GERMAN, FRENCH, SPANISH, ITALIAN, RUSSIAN, KOREAN)}
