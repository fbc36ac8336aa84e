"""Numbers as people read them: four characters of value, then the unit."""

from __future__ import annotations

import math

from llmtop.model import NS_PER_S

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((1 << 50, "Pi"), (1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def number(value: float) -> str:
    """Three significant digits, without an exponent and without trailing zeros that say nothing.

    >>> [number(v) for v in (0, 0.0123, 1.5, 12.34, 123.4, 98765)]
    ['0', '0.012', '1.50', '12.3', '123', '98765']
    """
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"


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


def percent(value: float) -> str:
    """A share given as 0 to 100.

    >>> percent(96.4), percent(0.3)
    ('96 %', '0.3 %')
    """
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def quantity(value: float, unit: str) -> str:
    """A number in its unit, scaled for reading.

    >>> quantity(3.3e12, "bytes/s"), quantity(0.5, "ratio"), quantity(1410, "MHz"), quantity(0.021, "s")
    ('3.30 TB/s', '50 %', '1410 MHz', '21.0 ms')
    >>> quantity(1.98e9, "Hz"), quantity(2.4e11, "sector/s")
    ('1.98 GHz', '240 Gsector/s')
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
        case "s":
            return duration(value * NS_PER_S)
        case "ns":
            return duration(value)
        case "%":
            return percent(value)
        case "ratio":
            return percent(value * 100)
        case "1" | "":
            return number(value)
        case "Hz" | "op/s" | "inst/s" | "sector/s" | "wavefront/s" | "warp/s":
            return si(value, unit)
        case "kHz":
            return si(value * 1e3, "Hz")
        case _:
            return f"{number(value)} {unit}"
