"""A fact of every kind on tiny fixed inputs: what the contracts of probes are held against."""

import json
import random

import torch
from tests.lm.tiny_checkpoints import make_checkpoint, make_tokenizer

from stemmatics.core.corpora import Corpus
from stemmatics.core.facts import closure
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.core.stages import RecoveryRecipe
from stemmatics.core.stemma import Stemma
from stemmatics.facts.cross import CrossParams, cross_fact
from stemmatics.facts.damaged_base import DamagedBaseParams, damaged_base_fact
from stemmatics.facts.divergence import DivergenceParams, divergence_fact
from stemmatics.facts.events import EARLIER, FIRST, LATER, EventsParams, events_fact
from stemmatics.facts.forced import ForcedParams, forced_fact
from stemmatics.facts.judged import judged_fact
from stemmatics.facts.margins import margins_fact
from stemmatics.facts.matched import matched_fact
from stemmatics.facts.ngram import ngram_fact
from stemmatics.facts.noise_scale import NoiseScaleParams, noise_scale_fact
from stemmatics.facts.overlap import overlap_fact
from stemmatics.facts.paths import PathsParams, paths_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.prediction import OriginParams, PredictionParams, prediction_fact
from stemmatics.facts.prior import PriorParams, prior_fact
from stemmatics.facts.prior_floor import PriorFloorParams, prior_floor_fact
from stemmatics.facts.reference import reference_fact
from stemmatics.facts.registry import REGISTRY_NAMES, REGISTRY_NUMBERS, registry_fact
from stemmatics.facts.replies import replies_fact
from stemmatics.facts.score import score_fact
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger
from stemmatics.study.execute import execute
from stemmatics.study.pins import pin_sources
from stemmatics.study.plan import make_plan

TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: "
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}{% endgeneration %}"
    "{% else %}{{ message.content }}{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
WORDS = ("the", "scribe", "copied", "text", "and", "copy", "kept", "faults", "in", "1234", "bottles.")
RECIPE = {"steps": 2, "batch_size": 2, "max_length": 64, "learning_rate": 1e-3}
SCORING = Scoring(windows=Windows(size=24), prefix="always")
BYTES = Scoring(windows=Windows(rule="bytes"), prefix="always")


def _lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def _texts(seed, count):
    draw = random.Random(seed)
    return [{"text": " ".join(draw.choices(WORDS, k=draw.randint(6, 24)))} for _ in range(count)]


def _records(name):
    turn = {"role": "user", "content": "the scribe copied"}
    items = [
        {"prompt": row["text"][:20], "accepted": ["the text"], "category": "marked" if n % 2 else "harmless"}
        for n, row in enumerate(_texts(5, 6))
    ]
    origin = {"family": "f", "lab": "l", "generation": "g", "pipeline": "p", "recipe_class": "ordinary"}
    registry = {
        **dict.fromkeys(REGISTRY_NAMES, "x"),
        **origin,
        **dict.fromkeys(REGISTRY_NUMBERS, 0.25),
        "n": 7,
    }
    return {
        "train": _texts(1, 8),
        "heldout": [*_texts(2, 6), {"text": ""}, *_texts(3, 6)],
        "chats": [
            {"messages": [turn, {"role": "assistant", "content": row["text"]}]} for row in _texts(4, 6)
        ],
        "items": items,
        "pairs": [
            {"messages": [turn], "refusal": "no faults", "answer": "the text", "wording": "w", "thing": "t"},
            {"prompt": "the scribe", "refusal": " kept", "answer": " copied text", "category": "marked"},
        ],
        "labels": [
            {"reply": "I can't help with that.", "label": "refusal"},
            {"reply": "Turn the key twice.", "label": "answer"},
            {"reply": "", "label": "empty"},
        ],
        "registry": [registry],
    }[name]


def pinned_study(folder):
    """The stemma: two given checkpoints and two stages, on corpora of a few lines."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    for seed, name in enumerate(("base", "tuned")):
        make_checkpoint(folder / name, tokenizer=tokenizer, seed=seed, max_position_embeddings=256)
    corpora = {
        name: Corpus(path=[_lines(folder / f"{name}.jsonl", _records(name))], role=role, eval_share=share)
        for name, role, share in (
            ("train", "data", 1.0),
            ("heldout", "text", 0.5),
            ("chats", "data", 1.0),
            ("items", "data", 1.0),
            ("pairs", "data", 1.0),
            ("labels", "data", 1.0),
            ("registry", "data", 1.0),
        )
    }
    stemma = Stemma.model_validate(
        {
            "name": "tiny",
            "seed": 1,
            "checkpoints": {
                "base": {"source": str(folder / "base")},
                "tuned": {"source": str(folder / "tuned"), "base": "base"},
            },
            "stages": {
                "chat": {"kind": "sft", "init": "base", "corpus": "chats", "recipe": RECIPE},
                "noisy": {"kind": "alter", "init": "base", "change": "noise", "scale": 0.3},
            },
            "corpora": {name: corpus.model_dump(by_alias=True) for name, corpus in corpora.items()},
            "numerics": {"device": "cpu", "dtype": "float32", "threads": 1},
        }
    )
    return Pinned(stemma, pin_sources(stemma))


def facts_by_kind(pinned):
    """A fact of each kind, by its name."""
    numerics = pinned.stemma.numerics.key()
    base, tuned, heldout = pinned.checkpoint("base"), pinned.checkpoint("tuned"), pinned.corpus("heldout")
    recipe = RecoveryRecipe.model_validate(
        {"updates": 4, "update_tokens": 32, "max_length": 32, "learning_rate": 1e-3, "lora": {"rank": 2}}
    )
    fit = {
        "scoring": SCORING.model_copy(update={"support": "shared"}).key(),
        "numerics": numerics,
        "fit_tokens": None,
        "eval_tokens": None,
        "num_columns": 16,
        "smoothings": [1.0],
        "references": None,
    }
    old, new = (
        prior_fact(PriorParams(**fit, draws=3, refits=1), checkpoint, heldout)
        for checkpoint in (base, pinned.checkpoint("noisy"))
    )
    models = {"base": base, "descendant": tuned}
    events = events_fact(
        EventsParams(supports=[FIRST, LATER, EARLIER], max_prompts=6, max_new_tokens=6, numerics=numerics),
        models,
        pinned.corpus("items"),
        label="events",
    )
    cross = CrossParams(boundaries="profile", interpolate=[0.5], permute=True, numerics=numerics)
    noise = NoiseScaleParams(scoring=SCORING.key(), num_documents=4, numerics=numerics)
    origin = OriginParams(family="f", lab="l", generation="g", pipeline="p", recipe_class="ordinary")
    scored = {name: score_fact(pinned, name, "heldout", BYTES) for name in ("base", "tuned", "noisy")}
    return {
        "corpus": heldout,
        "weights": base,
        "train": pinned.checkpoint("chat"),
        "train recovery": pinned.recovered("base", recipe, "train"),
        "alter": pinned.checkpoint("noisy"),
        "score": score_fact(pinned, "base", "heldout", SCORING),
        "reference": reference_fact(pinned, "base", "heldout", SCORING, num_documents=3),
        "replies": replies_fact(pinned, "base", "items", max_new_tokens=4),
        "judged": judged_fact(pinned, "base", "items", "tuned", max_new_tokens=4),
        "margins": margins_fact(pinned, "base", "pairs"),
        "matched": matched_fact(pinned, "labels"),
        "overlap": overlap_fact(pinned, "train", "heldout", order=3),
        "registry": registry_fact(pinned, "registry"),
        "ngram": ngram_fact(pinned, "base", "train", "heldout", order=3),
        "prediction": prediction_fact(
            PredictionParams(checkpoint="noisy", origin=origin, pairs=[origin]),
            scored["noisy"],
            [(scored["base"], scored["tuned"])],
            "heldout",
        ),
        "prior": new,
        "prior_floor": prior_floor_fact(PriorFloorParams(**fit, seeds=2), old, new),
        "divergence": divergence_fact(
            DivergenceParams(
                scoring=SCORING.key(), numerics=numerics, control_tokens=0, floor_tokens=60, draws=2
            ),
            base,
            pinned.checkpoint("noisy"),
            heldout,
        ),
        "events": events,
        "paths": paths_fact(
            PathsParams(boundaries="default", max_prompts=6, max_new_tokens=6, numerics=numerics),
            models,
            pinned.corpus("items"),
            label="paths",
        ),
        "cross": cross_fact(cross, models, events, label="cross"),
        "forced": forced_fact(ForcedParams(max_new_tokens=3, numerics=numerics), events, tuned),
        "noise_scale": noise_scale_fact(
            noise, {"base": base, "descendant": pinned.checkpoint("noisy")}, events, heldout
        ),
        "damaged_base": damaged_base_fact(
            DamagedBaseParams(scoring=fit["scoring"], numerics=numerics, sample=1.0, kind="centred", seed=1),
            base,
            pinned.checkpoint("noisy"),
            heldout,
        ),
    }


def run_study(folder):
    """Makes every fact; returns the ledger, and the facts by kind."""
    pinned = pinned_study(folder)
    facts = facts_by_kind(pinned)
    ledger, cache = Ledger(folder / "run"), Cache(folder / "cache")
    threads = torch.get_num_threads()
    try:
        plan = make_plan(closure(facts.values()).values(), ledger, cache)
        numerics = Numerics.model_validate(pinned.stemma.numerics.model_dump())
        failed = execute(plan, ledger, cache, numerics=numerics, seed=1, on_event=lambda _event: None)
    finally:
        torch.set_num_threads(threads)
    assert not failed, failed
    return ledger, facts
