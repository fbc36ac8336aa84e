"""Numbers as people read them: four characters of value, then the unit."""

from __future__ import annotations

import math
from collections.abc import Callable

from llmtop.model import NS_PER_S

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_WITH_EXPONENT = 1e-4
"""Below it Python writes one."""
_BINARY = ((1 << 50, "Pi"), (1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def number(value: float) -> str:
    """Three significant digits, without an exponent and without trailing zeros that say nothing.

    >>> [number(v) for v in (0, 0.0123, 1.5, 12.34, 123.4, 98765, 2.34e-6, 1e-5)]
    ['0', '0.012', '1.50', '12.3', '123', '98765', '0.0000023', '0.00001']
    """
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.1:
        return f"{value:.2f}"
    return f"{value:.2g}" if size >= _WITH_EXPONENT else f"{value:.{1 - math.floor(math.log10(size))}f}".rstrip("0")


def si(value: float, unit: str = "") -> str:
    """A value with an SI prefix: bytes/s and FLOP/s count in thousands, as datasheets do.

    >>> si(3.352e12, "B/s"), si(683e12, "FLOP/s"), si(512, "B/s")
    ('3.35 TB/s', '683 TFLOP/s', '512 B/s')
    """
    size = abs(value)
    for scale, prefix in _SI:
        if size >= scale * 0.9995:
            return f"{number(value / scale)} {prefix}{unit}"
    return f"{number(value)} {unit}".rstrip()


def binary_bytes(value: float) -> str:
    """Memory sizes count in 1024s.

    >>> binary_bytes(80 * 2**30), binary_bytes(512)
    ('80.0 GiB', '512 B')
    """
    for scale, prefix in _BINARY:
        if abs(value) >= scale:
            return f"{number(value / scale)} {prefix}B"
    return f"{value:.0f} B"


def duration(ns: float) -> str:
    """A length of time in the largest unit that keeps it above one.

    >>> [duration(v) for v in (840, 12_345, 2_500_000, 1.5e9, 95e9)]
    ['840 ns', '12.3 µs', '2.50 ms', '1.50 s', '95.0 s']
    """
    for scale, unit in ((NS_PER_S, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= scale * 0.9995:
            return f"{number(ns / scale)} {unit}"
    return f"{number(ns)} ns"


def seen(seconds: float) -> str:
    """For how long was looked: in whole seconds, and less than one in tenths, for what it tells is rough.

    >>> seen(0.27), seen(0.96), seen(9.6), seen(60.0)
    ('0.3 s', '1 s', '10 s', '60 s')
    """
    return f"{seconds:.1f} s" if seconds < 0.95 else f"{seconds:.0f} s"


def clock_time(seconds: float) -> str:
    """A place in a recording, or its length: hours, minutes and seconds, to the nearest one.

    >>> clock_time(751.4), clock_time(59.6), clock_time(90000)
    ('00:12:31', '00:01:00', '25:00:00')
    """
    whole = round(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def percent(value: float) -> str:
    """A share given as 0 to 100.

    >>> percent(96.4), percent(0.3)
    ('96 %', '0.3 %')
    """
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def count(value: float) -> str:
    """How many: whole, with commas between thousands; means of counts keep a digit below 100.

    >>> count(2120), count(0), count(3.25), count(583.4), count(1234567.0)
    ('2,120', '0', '3.2', '583', '1,234,567')
    """
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 99.95 else f"{value:.1f}"


def counted(value: float, noun: str, verb: str = "") -> str:
    """How many of what, whole, and what they do: singular and plural of regular words.

    >>> counted(3, "request"), counted(1.2, "request", "wait"), counted(2.4, "request", "wait")
    ('3 requests', '1 request waits', '2 requests wait')
    """
    is_one = round(value) == 1
    does = f" {verb}{'s' * is_one}" if verb else ""
    return f"{value:,.0f} {noun}{'s' * (not is_one)}{does}"


def two_digits(value: float, unit: str) -> str:
    """An estimate: two digits promise 5 % at best.

    >>> two_digits(0.0937, "s"), two_digits(1.234, "s"), two_digits(118.2, "s"), two_digits(0.0, "s")
    ('94 ms', '1.2 s', '120 s', '0 s')
    """
    if value:
        step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
        value = round(value / step) * step
    scale, name = _scale(value, unit)
    return f"{_digits(value / scale, round)} {name}".rstrip()


def bounds(low: float, high: float, unit: str) -> str:
    """What is known of a number that lies between two others (inf: there is no upper one), rounded outwards.

    >>> bounds(0, 0.3, "s"), bounds(80, 120, "s"), bounds(0.8, 1.2, "s"), bounds(2560, math.inf, "s")
    ('< 300 ms', '80 to 120 s', '800 ms to 1.2 s', '> 2560 s')
    >>> bounds(0, 0.012341, "s"), bounds(65536, 131072, "ns"), bounds(0, math.inf, "s")
    ('< 12.4 ms', '65.5 to 132 µs', '> 0 s')
    """
    (lower_scale, lower), (upper_scale, upper) = _scale(low, unit), _scale(high, unit)
    above = f"{_digits(low / lower_scale, math.floor)}"
    if math.isinf(high):
        return f"> {above} {lower}".rstrip()
    below = f"{_digits(high / upper_scale, math.ceil)} {upper}".rstrip()
    if low == 0:
        return f"< {below}"
    return f"{above} to {below}" if lower == upper else f"{above} {lower} to {below}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """What to divide by, and the unit then; of other units than times and shares, as they are."""
    if unit == "ratio":
        return 0.01, "%"
    if unit not in ("s", "ns"):
        return 1.0, unit if unit != "1" else ""
    one = 1.0 if unit == "s" else float(NS_PER_S)
    steps = ((one, "s"), (one / 1e3, "ms"), (one / 1e6, "µs"), (one / 1e9, "ns"))
    return next((step for step in steps if abs(value) >= step[0] * 0.9995), steps[0] if not value else steps[-1])


def _digits(value: float, rounded: Callable[[float], int]) -> str:
    """Three digits at least, all those before the point, and no zeros that say nothing behind it."""
    places = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    scaled = value * 10**places
    whole = round(scaled) if math.isclose(scaled, round(scaled), rel_tol=1e-9) else rounded(scaled)
    text = f"{whole / 10**places:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity(value: float, unit: str) -> str:
    """A number in its unit, scaled for reading.

    >>> quantity(3.3e12, "bytes/s"), quantity(0.5, "ratio"), quantity(1410, "MHz"), quantity(0.021, "s")
    ('3.30 TB/s', '50 %', '1410 MHz', '21.0 ms')
    >>> quantity(1.98e9, "Hz"), quantity(2.4e11, "sector/s"), quantity(2.5e8, "ns/s"), quantity(1, "requests")
    ('1.98 GHz', '240 Gsector/s', '25 %', '1 request')
    """
    if math.isnan(value):
        raise ValueError("NaN is not a quantity: use Unknown")
    match unit:
        case "bytes":
            return binary_bytes(value)
        case "bytes/s":
            return si(value, "B/s")
        case "FLOP/s" | "FLOP":
            return si(value, unit)
        case "ns/s":  # time in a second: of a thread at most all of it, of a process as much as it has CPUs
            return percent(value / NS_PER_S * 100)
        case "s":
            return duration(value * NS_PER_S)
        case "ns":
            return duration(value)
        case "%":
            return percent(value)
        case "ratio":
            return percent(value * 100)
        case "requests":
            return f"{count(value)} request{'s' * (value != 1)}"
        case "count":
            return count(value)
        case "1" | "":
            return number(value)
        case "Hz" | "op/s" | "inst/s" | "sector/s" | "wavefront/s" | "warp/s":
            return si(value, unit)
        case "kHz":
            return si(value * 1e3, "Hz")
        case _:
            return f"{number(value)} {unit}"
