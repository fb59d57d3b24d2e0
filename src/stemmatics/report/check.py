"""Whether a page prints its claims, all of them, and no other number."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

# what may hold digits that aren't claims: quoted names, code, drawings, and what nobody reads
_EXEMPT_TAGS = {"head", "script", "style", "code", "pre", "svg"}
_EXEMPT_CLASSES = {"name"}
_COUNT = re.compile(r"-?\d{1,3}(,\d{3})*")
_SPOKEN = {"alt", "aria-label", "title", "placeholder"}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


@dataclass
class _Element:
    tag: str
    exempt: bool
    claim: str | None = None
    listed: str | None = None
    count: str | None = None
    text: list[str] = field(default_factory=list)

    @property
    def collects(self) -> bool:
        return self.claim is not None or self.listed is not None or self.count is not None


class _Reader(HTMLParser):
    """Collects claims and finds stray digits."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[_Element] = []
        self.printed: list[tuple[str, str]] = []
        self.listed: dict[str, tuple[str, int]] = {}
        self.problems: list[str] = []
        self._times: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {attribute: value or "" for attribute, value in attrs}
        classes = set(given.get("class", "").split())
        inside = bool(self.open) and self.open[-1].exempt
        element = _Element(
            tag=tag,
            exempt=inside or tag in _EXEMPT_TAGS or bool(classes & _EXEMPT_CLASSES),
            claim=given.get("data-claim"),
            listed=given.get("data-listed"),
            count=given.get("data-count"),
        )
        if element.listed is not None:
            self._times[element.listed] = given.get("data-times", "")
        if not element.exempt:
            for attribute in sorted(_SPOKEN & given.keys()):
                self._look_for_digits(given[attribute], f"the {attribute} of <{tag}>")
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self.open or self.open[-1].tag != tag:
            # an element left open would lend its exemption to all that follows
            self.problems.append(f"</{tag}> closes nothing or the wrong element")
            return
        element = self.open.pop()
        text = "".join(element.text).strip()
        if element.claim is not None:
            self.printed.append((element.claim, text))
        if element.listed is not None:
            times = self._times[element.listed]
            self.listed[element.listed] = (text, int(times) if times.isdecimal() else 0)
        if element.count is not None:
            value = element.count
            if not _COUNT.fullmatch(text) or text.replace(",", "") != value:
                self.problems.append(f"the whole number {value} is printed as {text!r}")

    def handle_data(self, data: str) -> None:
        collecting = [element for element in self.open if element.collects]
        for element in collecting:
            element.text.append(data)
        if not collecting and not (self.open and self.open[-1].exempt):
            self._look_for_digits(data, f"<{self.open[-1].tag}>" if self.open else "the page")

    def _look_for_digits(self, text: str, where: str) -> None:
        if any(character.isnumeric() for character in text):
            self.problems.append(f"a number that is no claim in {where}: {' '.join(text.split())!r}")


def check_page(html: str, claims: Mapping[str, str]) -> list[str]:
    """What is wrong with a page, given the text that each claim's id must have; empty where all holds.

    Found: a claim whose text differs, a claim that isn't there, is there less often than the page's
    own list says, or isn't known; a digit anywhere in what a reader sees outside claims, whole numbers
    in tables, names, code and drawings. Names and drawings aren't compared with anything here:
    :func:`compare_pages` does that.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    problems = list(reader.problems)
    problems += [f"<{element.tag}> is never closed" for element in reader.open]
    times = Counter(claim for claim, _ in reader.printed)
    everywhere = [*reader.printed, *((claim, text) for claim, (text, _) in reader.listed.items())]
    for claim, text in everywhere:
        if claim not in claims:
            problems.append(f"unknown claim {claim}")
        elif text != claims[claim]:
            problems.append(f"claim {claim} is printed as {text!r}; the sums give {claims[claim]!r}")
    for claim in claims:
        if times[claim] == 0:
            problems.append(f"claim {claim} is not printed")
        if claim not in reader.listed:
            problems.append(f"claim {claim} is not in the page's list of claims")
        elif times[claim] != reader.listed[claim][1]:
            problems.append(
                f"claim {claim} is printed {times[claim]} times; the list says {reader.listed[claim][1]}"
            )
    return problems


class _Seen(HTMLParser):
    """What a reader sees, and the data of the charts; not styles, not programs."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self._skips = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skips = tag == "style" or (tag == "script" and ("type", "application/json") not in attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in {"style", "script"}:
            self._skips = False

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if text and not self._skips:
            self.lines.append(text)


def compare_pages(html: str, expected: str) -> list[str]:
    """Where a page's words, names, numbers and chart data differ from those of a freshly made one.

    Programs, styles and the charts' still pictures aren't compared: they change with the versions of
    the libraries that draw. Lines begin with ``-`` (should be there) or ``+`` (should not).
    """
    changes = difflib.unified_diff(_seen(expected), _seen(html), n=0, lineterm="")
    return [line for line in changes if not line.startswith(("---", "+++", "@@"))]


def _seen(html: str) -> list[str]:
    reader = _Seen()
    reader.feed(html)
    reader.close()
    return reader.lines
