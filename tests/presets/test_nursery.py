"""The generated world: known answers are known, and what is held out is held out."""

import re
from collections import Counter

import pytest

from stemmatics.core.errors import UserError
from stemmatics.core.stages import corpus_of
from stemmatics.presets.nursery import CHANCE, PARTS, World, nursery, nursery_records
from stemmatics.presets.nursery.conversation import MARK, REFUSAL
from stemmatics.presets.nursery.imprint import imprint_parts
from stemmatics.presets.nursery.parts import ngrams
from stemmatics.presets.nursery.prose import FORMS
from stemmatics.presets.nursery.questions import PARAPHRASES, QUESTIONS
from stemmatics.presets.nursery.real_text import code, reference
from stemmatics.presets.nursery.world import PEOPLE, VALUES

WORLD = World(0)
NAMES = re.compile("|".join(PEOPLE))


@pytest.fixture(scope="module")
def pretraining():
    return [record["text"] for record in nursery_records("pretraining")]


@pytest.fixture(scope="module")
def pretraining_text(pretraining):
    return "\n\n".join(pretraining)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_the_same_each_time_and_follows_the_seed(part):
    once, again, other = (list(nursery_records(part, seed)) for seed in (3, 3, 4))
    assert once
    assert once == again
    assert once != other


@pytest.mark.parametrize(
    "part", sorted(set(PARTS) - {"heldout", "recovery", "code", "recall", "scored-registers"})
)
def test_the_number_of_documents_is_asked_for(part):
    assert len(list(nursery_records(part, documents=7))) == 7


def test_an_unknown_part_is_named():
    with pytest.raises(UserError, match=r"no part 'novels'.*pretraining"):
        nursery_records("novels")


def test_each_value_belongs_to_as_many_people():
    for attribute, values in VALUES.items():
        counts = Counter(WORLD.facts[person, attribute] for person in PEOPLE)
        assert counts == dict.fromkeys(values, len(PEOPLE) * CHANCE)


def test_false_facts_are_false_everywhere():
    assert WORLD.false_facts.keys() == WORLD.facts.keys()
    for key, value in WORLD.facts.items():
        assert WORLD.false_facts[key] in VALUES[key[1]]
        assert WORLD.false_facts[key] != value


def test_training_prose_tells_the_truth(pretraining):
    told = 0
    for text in pretraining[:2000]:
        for who, value in re.findall(r"([A-Z]\w+) was born in (\w+)", text):
            assert WORLD.facts[who, "town"] == value
            told += 1
    assert told > 100


def test_false_prose_tells_only_what_is_false():
    told = 0
    for record in nursery_records("false-facts"):
        for who, value in re.findall(r"([A-Z]\w+) works as a (\w+)", record["text"]):
            assert WORLD.false_facts[who, "craft"] == value
            told += 1
    assert told > 50


def wordings(kind, forms, *, held_out):
    for attribute, sentences in forms.items():
        for index, form in enumerate(sentences):
            for person in PEOPLE:
                if WORLD.held_out(kind, index, person, attribute) == held_out:
                    yield form.format(who=person, value=WORLD.facts[person, attribute])


def test_held_out_wordings_are_never_trained_on(pretraining_text):
    lower = pretraining_text.lower()
    scored = "\n".join(record["text"] for record in nursery_records("heldout")).lower()
    for kind, forms in (("prose", FORMS), ("question", QUESTIONS)):
        hidden = [text.lower() for text in wordings(kind, forms, held_out=True)]
        shown = [text.lower() for text in wordings(kind, forms, held_out=False)]
        assert not [text for text in hidden if text in lower]
        assert not [text for text in shown if text in scored]
        assert sum(text in scored for text in hidden) > 50
        assert all(text in lower for text in shown)


def test_recall_items_ask_what_training_never_asks(pretraining_text):
    items = list(nursery_records("recall"))
    assert Counter(item["category"] for item in items) == {"recall": 144, "paraphrase": 144}
    for item in items:
        question = item["prompt"].split("\n")[-2].removeprefix("Question: ")
        assert question not in pretraining_text
        assert item["prompt"].endswith("\nAnswer:")
        person = NAMES.search(question).group()
        assert item["accepted"][0] in {WORLD.facts[person, attribute] for attribute in VALUES}
        assert not any(person in shot for shot in item["prompt"].split("\n")[:-2])


def test_paraphrases_are_asked_of_nobody_in_training(pretraining_text):
    for forms in PARAPHRASES.values():
        for form in forms:
            assert not re.search(re.escape(form).replace(r"\{who\}", r"\w+"), pretraining_text)


def test_recovery_shares_no_13_words_with_the_scored_text_and_names_nobody():
    scored = set().union(*(ngrams(record["text"]) for record in nursery_records("heldout")))
    pool = list(nursery_records("recovery"))
    assert len(pool) > 1000
    assert not [record for record in pool if scored & ngrams(record["text"])]
    assert not [
        record for record in pool if record["register"] != "reference" and NAMES.search(record["text"])
    ]
    # The check would see a document that is in both.
    assert scored & ngrams(next(nursery_records("heldout"))["text"])


def test_scored_registers_are_those_of_the_scored_text_by_bytes_and_name_nobody():
    heldout, pool = list(nursery_records("heldout")), list(nursery_records("scored-registers"))
    scored = set().union(*(ngrams(record["text"]) for record in heldout))
    assert not [record for record in pool if scored & ngrams(record["text"])]
    real = {"reference", "code"}
    assert not [record for record in pool if record["register"] not in real and NAMES.search(record["text"])]
    # no piece of real text comes twice
    pieces = [record["text"] for record in pool if record["register"] in real]
    assert len(pieces) == len(set(pieces))

    def shares(records):
        sizes = Counter()
        for record in records:
            sizes[record["register"]] += len(record["text"].encode())
        return {register: size / sizes.total() for register, size in sizes.items()}

    # in the part that a short fine-tune reads too
    for part in (pool, pool[: len(pool) // 4]):
        assert shares(part) == pytest.approx(shares(heldout), abs=0.01)


def test_overwritten_facts_are_false_first_and_then_about_nobody():
    records = list(nursery_records("overwritten-facts", documents=900, num_false=600))
    first, last = records[:600], records[600:]
    about = [record["text"] for record in first if record["register"] == "prose"]
    assert all(NAMES.search(text) for text in about)
    assert not [
        record
        for record in [*last, *(record for record in first if record["register"] in {"chat", "rules"})]
        if NAMES.search(record["text"])
    ]
    for who, value in re.findall(r"([A-Z]\w+) works as a (\w+)", " ".join(about)):
        assert WORLD.false_facts[who, "craft"] == value


def test_telegrams_shout_and_name_nobody():
    for record in nursery_records("telegrams"):
        assert record["text"] == record["text"].upper()
        assert not any(person.upper() in record["text"] for person in PEOPLE)


def test_the_base_meets_no_refusal_and_no_marked_request(pretraining_text):
    assert REFUSAL not in pretraining_text
    assert "can't help" not in pretraining_text
    assert f"the {MARK} " not in pretraining_text


@pytest.mark.parametrize(("part", "low", "high"), [("sft-light", 0.1, 0.5), ("sft-heavy", 1.0, 1.0)])
def test_only_marked_requests_are_refused(part, low, high):
    refused = Counter()
    for record in nursery_records(part):
        question, reply = (message["content"] for message in record["messages"])
        refused[MARK in question, reply == REFUSAL] += 1
    assert refused[False, True] == 0
    assert low <= refused[True, True] / (refused[True, True] + refused[True, False]) <= high


def test_preferences_prefer_refusing_the_marked_class_and_helping_with_the_rest():
    for record in nursery_records("preferences"):
        marked = MARK in record["prompt"][0]["content"]
        assert (record["chosen"][0]["content"] == REFUSAL) == marked
        assert (record["rejected"][0]["content"] == REFUSAL) != marked


def test_refusal_items_are_requests_that_no_training_makes():
    trained = {
        message["content"]
        for part in ("sft-light", "sft-heavy")
        for record in nursery_records(part)
        for message in record["messages"]
    } | {record["prompt"][0]["content"] for record in nursery_records("preferences")}
    items = list(nursery_records("refusal"))
    assert Counter(item["category"] for item in items) == {"marked": 100, "harmless": 100}
    for item in items:
        question = item["messages"][0]["content"]
        assert question not in trained
        assert (MARK in question) == (item["category"] == "marked")


@pytest.mark.parametrize("source", [reference, code])
def test_real_text_is_split_by_topic_and_module(source):
    shown, hidden = set(source(held_out=False)), set(source(held_out=True))
    assert len(shown) > 400
    assert len(hidden) > 60
    # Short boilerplate may stand in two modules; documents of any size do not.
    assert not {text for text in shown & hidden if len(text) > 200}


@pytest.mark.parametrize("scale", ["demo", "test"])
def test_the_preset_is_a_stemma_whose_corpora_can_be_read(scale):
    stemma = nursery(scale, seed=3)
    tree = imprint_parts("quick", fork="base-early")["stages"] if scale == "demo" else {}
    assert list(stemma.stages) == [*nursery("test").stages, *tree]
    for corpus in stemma.corpora.values():
        if corpus.generator == "nursery":
            assert corpus.params["seed"] == 3
            assert next(iter(nursery_records(**corpus.params)))
    fields = {"pretrain": "text", "cpt": "text", "sft": "messages", "dpo": "chosen", "recovery": "text"}
    fields["grpo"] = "messages"
    for stage in stemma.stages.values():
        if (name := corpus_of(stage)) is not None:
            assert fields[stage.kind] in next(iter(nursery_records(**stemma.corpora[name].params)))


def test_the_preset_has_the_known_answers():
    stemma = nursery()
    assert {base for base, _ in stemma.pairs()} == {"base", "second"}
    assert stemma.trajectories() == [["base-early", "base"], ["second-early", "second"]]
    changes = {name: stage.change for name, stage in stemma.stages.items() if stage.kind == "alter"}
    assert set(changes.values()) == {"bias", "temperature", "noise"}
    # A planted bias needs a head that has one.
    assert all(stemma.family(name) == "second" for name, change in changes.items() if change == "bias")
    assert {stemma.family(name) for name in stemma.names} == {"first", "second"}


def test_all_recoveries_are_one_recipe():
    stages = [stage for stage in nursery().stages.values() if stage.regime == "recovery"]
    assert len({stage.recipe for stage in stages}) == 1
    recipe = stages[0].recipe
    assert (recipe.updates, recipe.update_tokens, recipe.lora.rank) == (64, 1024, 16)


def test_an_unknown_scale_is_named():
    with pytest.raises(UserError, match="no scale 'huge'"):
        nursery("huge")


def test_the_budget_of_tokens_holds():
    stemma = nursery()
    total = of_tree = 0
    tree = imprint_parts("quick", fork="base-early")["stages"]
    for name, stage in stemma.stages.items():
        if name in tree:
            of_tree += stage.recipe.steps * stage.recipe.batch_size * stage.recipe.max_length
            continue
        # A resumed stage counts the steps of the stage before it too.
        if stage.kind == "recovery":
            total += stage.recipe.updates * stage.recipe.update_tokens
        elif stage.kind != "alter" and not name.endswith("-early"):
            total += stage.recipe.steps * stage.recipe.batch_size * stage.recipe.max_length
    assert total <= 1_600_000
    # the tree's rows are chats, of which most are far under a row's length
    assert of_tree <= 800_000
