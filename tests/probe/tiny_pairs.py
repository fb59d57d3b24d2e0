"""Facts about a tiny base and descendant, run without a study."""

import json

from tests.lm.tiny_checkpoints import make_checkpoint, make_tokenizer

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.pin import pin
from stemmatics.lm.text.contents import content_hash
from stemmatics.probe.base import Context
from stemmatics.probe.corpus import CorpusProbe
from stemmatics.probe.cross import Cross
from stemmatics.probe.events import Events
from stemmatics.probe.paths import Paths
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger

TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }} {% endfor %}reply:"
LAYERS = 4


class TinyPairs:
    """Makes ``events`` and ``cross`` facts of tiny models on the records given, and runs them."""

    def __init__(self, folder):
        self.folder = folder
        self.context = Context(Ledger(folder / "run"), Cache(folder / "cache"), Numerics(), 0)
        self.models = {"base": self._weights("base", seed=0), "descendant": self._weights("tuned", seed=1)}
        # a descendant of another width can't be crossed with the base
        self.wide = self._weights("wide", seed=1, intermediate_size=40)

    def _weights(self, name, **changes):
        tokenizer = make_tokenizer()
        tokenizer.chat_template = TEMPLATE
        source = make_checkpoint(self.folder / name, tokenizer=tokenizer, num_hidden_layers=LAYERS, **changes)
        return Fact("weights", 1, pin(str(source)).key(), label=name, where={"source": str(source)})

    def events(
        self, records, *, supports=("first",), max_prompts=100, max_new_tokens=8, wide=False, opening=None
    ):
        path = self.folder / "records.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        corpus = Corpus(path=[str(path)], role="data" if opening is None else "text")
        params = {"content_sha256": content_hash(corpus), "num_documents": len(records), "seed": 0}
        where = corpus.model_dump(mode="json", by_alias=True)
        documents = Fact("corpus", 1, params, label="records", where=where)
        for made in CorpusProbe().run([documents], self.context):
            self.context.ledger.record(made.fact, made.tables, **made.extra)
        params = {
            "supports": list(supports),
            "max_prompts": max_prompts,
            "max_new_tokens": max_new_tokens,
            "numerics": {},
            **({} if opening is None else {"opening_tokens": opening}),
        }
        models = {**self.models, "descendant": self.wide} if wide else self.models
        return Fact("events", 1, params, {**models, "corpus": documents}, label="events")

    def without_template(self, name):
        """Take the chat template from the tokenizer of a checkpoint, and pin it again."""
        folder = self.folder / name
        tokenizer = make_tokenizer()
        tokenizer.chat_template = None
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        tokenizer.save_pretrained(folder)
        role = "base" if name == "base" else "descendant"
        self.models[role] = Fact(
            "weights", 1, pin(str(folder)).key(), label=name, where={"source": str(folder)}
        )

    def run_paths(self, events, *, max_new_tokens=8):
        """The rows of a ``paths`` fact on the prompts of an ``events`` fact, by table; recorded."""
        needs = dict(events.needs)
        params = {
            "boundaries": "default",
            "max_prompts": 100,
            "max_new_tokens": max_new_tokens,
            "numerics": {},
        }
        fact = Fact("paths", 1, params, needs, label="paths")
        (made,) = Paths().run([fact], self.context)
        if hasattr(made, "reason"):
            raise UserError(made.reason, "the fact failed", "see the reason")
        self.context.ledger.record(fact, made.tables, **made.extra)
        return fact, {name: table.to_pylist() for name, table in made.tables.items()}

    def run_events(self, fact):
        """The rows of an ``events`` fact; UserError with the reason if it fails."""
        (made,) = Events().run([fact], self.context)
        if hasattr(made, "reason"):
            raise UserError(made.reason, "the fact failed", "see the reason")
        self.context.ledger.record(fact, made.tables, **made.extra)
        return made.tables["events"].to_pylist()

    def run_cross(self, events, *, boundaries="default", permute=False):
        """The rows of a ``cross`` fact by table."""
        params = {"boundaries": boundaries, "interpolate": [], "permute": permute, "numerics": {}}
        needs = {name: events.needs[name] for name in ("base", "descendant")}
        fact = Fact("cross", 1, params, {**needs, "events": events}, label="cross")
        (made,) = Cross().run([fact], self.context)
        return {name: table.to_pylist() for name, table in made.tables.items()}
