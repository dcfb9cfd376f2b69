"""Another implementation's word on JSON and gzip: one question a line on stdin, one answer a line on stdout.

json HEX HEX  ->  A B SAME   whether each text is accepted, and whether both mean the same
gzip HEX      ->  HEX or !   what it inflates to, at most 1 MiB of it; ! when it is not gzip
"""

import json
import sys
import zlib
from decimal import Decimal

DEPTH_MAX = 64


class Refused(Exception):
    pass


def exact(text):
    """A number as its value, never rounded and never expanded."""
    mantissa, _, exponent = text.lower().partition("e")
    negative = mantissa.startswith("-")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    sign = -1 if exponent.startswith("-") else 1
    power = sign * int(exponent.lstrip("+-") or "0") - len(fraction)
    digits = (whole + fraction).lstrip("0")
    stripped = digits.rstrip("0")
    power += len(digits) - len(stripped)
    mine = ("zero",) if not stripped else (negative, stripped, power)
    # Where decimal can hold it at all, it must agree: scaled to the same digits it is the same number.
    if stripped and abs(power) < 10**17 and len(stripped) < 10**5:
        value = Decimal(text)
        scaled = Decimal((1 if negative else 0, tuple(map(int, stripped)), power))
        assert value == scaled, text
    return mine


def text_of(text):
    if any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        raise Refused("lone surrogate")
    return text


class Object:
    def __init__(self, pairs):
        self.members = {}
        for name, value in pairs:
            if text_of(name) in self.members:
                raise Refused("duplicate")
            self.members[name] = value


class Number:
    def __init__(self, text):
        self.value = exact(text)


def plain(value, depth=0):
    """A form that == compares by meaning, with every kind apart."""
    if depth > DEPTH_MAX:
        raise Refused("deep")
    if isinstance(value, Object):
        if depth == DEPTH_MAX:
            raise Refused("deep")
        return ("object", {name: plain(member, depth + 1) for name, member in value.members.items()})
    if isinstance(value, list):
        if depth == DEPTH_MAX:
            raise Refused("deep")
        return ("array", [plain(element, depth + 1) for element in value])
    if isinstance(value, Number):
        return ("number", value.value)
    if isinstance(value, str):
        return ("text", text_of(value))
    return ("literal", repr(value))


def refuse(word):
    raise Refused(word)


def read(data):
    if not data:
        return plain(Object([]))
    try:
        text = data.decode("utf-8")
        return plain(
            json.loads(text, object_pairs_hook=Object, parse_float=Number, parse_int=Number, parse_constant=refuse)
        )
    except (ValueError, RecursionError, Refused):
        return None


def gunzip(data):
    out = b""
    while data:
        member = zlib.decompressobj(wbits=31)
        try:
            out += member.decompress(data, 2**20 + 1)
        except zlib.error:
            return None
        if len(out) > 2**20:
            return out[: 2**20 + 1]
        if not member.eof:
            return None
        data = member.unused_data
    return out


def answer(line):
    question, *hexes = line.split(" ")
    data = [bytes.fromhex(text) for text in hexes]
    if question == "json":
        first, second = read(data[0]), read(data[1])
        flags = (first is not None, second is not None, first is not None and first == second)
        return " ".join("1" if flag else "0" for flag in flags)
    inflated = gunzip(data[0])
    return "!" if inflated is None else inflated.hex()


if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)
for line in sys.stdin:
    print(answer(line.rstrip("\n")), flush=True)
