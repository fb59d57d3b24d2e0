"""Digits on a page that belong to no claim: numbers that `verify` could not name."""

from html.parser import HTMLParser

# where digits need no claim: what nobody sees, quoted names, code and drawings
EXEMPT_TAGS = {"head", "script", "style", "code", "pre", "svg"}
MARKS = {"data-claim", "data-count"}
SPOKEN = {"alt", "aria-label", "title", "placeholder"}
VOID = {"br", "hr", "img", "input", "link", "meta"}


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.stray = []

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        exempt = (
            (bool(self.open) and self.open[-1][1])
            or tag in EXEMPT_TAGS
            or bool(MARKS & given.keys())
            or "name" in given.get("class", "").split()
        )
        if not exempt:
            for name in sorted(SPOKEN & given.keys()):
                self.look(given[name])
        if tag not in VOID:
            self.open.append((tag, exempt))

    def handle_endtag(self, tag):
        # an element left open would lend its exemption to all that follows
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop()[0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if not (self.open and self.open[-1][1]):
            self.look(data)

    def look(self, text):
        if any(character.isnumeric() for character in text):
            self.stray.append(" ".join(text.split()))


def stray_digits(page):
    """Texts with digits outside claims, whole numbers in tables, names, code and drawings."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open, f"<{reader.open[-1][0]}> is never closed"
    return reader.stray
