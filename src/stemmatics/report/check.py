"""Compares a page with the results: its claims one by one, and all of its text with a page rendered again."""

from __future__ import annotations

import difflib
import html
import json
import re
from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser

from stemmatics.report.page_data import ELEMENT_ID, claims_of

_PRINTED = re.compile(r'<span data-claim="([^"]*)">([^<]*)</span>')
_DATA = re.compile(rf'<script type="application/json" id="{ELEMENT_ID}">(.*?)</script>', re.DOTALL)
# attributes that are read out or shown
_TEXT_ATTRIBUTES = ("alt", "aria-label", "placeholder", "title")


def check_page(page: str, claims: Mapping[str, str]) -> list[str]:
    """Problems with the claims of a page, given the text that each id must have.

    Reported are claims that are unknown, differ, are missing, or are printed less or more often than the
    page's own list says. What else is on the page is left to :func:`compare_pages`.
    """
    printed = [(html.unescape(claim), html.unescape(text)) for claim, text in _PRINTED.findall(page)]
    try:
        listed, times = _listed_claims(page)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        return [f"the page's data can't be read: {error}"]
    times.update(claim for claim, _ in printed)
    texts = {claim: (text, count) for claim, text, count in listed}
    problems = []
    for claim, text in [*printed, *((claim, text) for claim, text, _ in listed)]:
        if claim not in claims:
            problems.append(f"unknown claim {claim}")
        elif text != claims[claim]:
            problems.append(f"claim {claim} is printed as {text!r}; the sums give {claims[claim]!r}")
    for claim in claims:
        if times[claim] == 0:
            problems.append(f"claim {claim} is not printed")
        if claim not in texts:
            problems.append(f"claim {claim} is not in the page's list of claims")
        elif times[claim] != texts[claim][1]:
            problems.append(f"claim {claim} is printed {times[claim]} times; the list says {texts[claim][1]}")
    return problems


def _listed_claims(page: str) -> tuple[list[tuple[str, str, int]], Counter[str]]:
    """The list of claims in the page's data, and how often its tables print each."""
    blocks = _DATA.findall(page)
    if len(blocks) != 1:
        message = f"there are {len(blocks)} blocks of data where one is expected"
        raise ValueError(message)
    return claims_of(json.loads(blocks[0]))


def compare_pages(page: str, expected: str) -> list[str]:
    """Where a page's words, names, numbers and chart data differ from those of a page rendered again.

    Programs, styles and the charts' still pictures are not compared: they change with the versions of
    the drawing libraries. Lines begin with ``-`` (missing from the page) or ``+`` (added to it).
    """
    changes = difflib.unified_diff(_visible_text(expected), _visible_text(page), n=0, lineterm="")
    return [line for line in changes if not line.startswith(("---", "+++", "@@"))]


class _VisibleText(HTMLParser):
    """What a reader sees or hears, and the data of the charts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self._is_hidden = False
        self._is_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_hidden = tag == "style" or (tag == "script" and ("type", "application/json") not in attrs)
        self._is_data = tag == "script" and not self._is_hidden
        self.lines += [f"{name}: {value}" for name, value in attrs if name in _TEXT_ATTRIBUTES]

    def handle_endtag(self, tag: str) -> None:
        if tag in {"style", "script"}:
            self._is_hidden = self._is_data = False

    def handle_data(self, data: str) -> None:
        if self._is_hidden:
            return
        # data has a row a line
        for part in data.splitlines() if self._is_data else [data]:
            text = " ".join(part.split())
            if text:
                self.lines.append(text)


def _visible_text(page: str) -> list[str]:
    reader = _VisibleText()
    reader.feed(page)
    reader.close()
    return reader.lines
