"""Several descendants, and conditions that fail a comparison."""

import json
import math

import pytest

from stemmatics.commands.compare import named_descendants, pair_stemma
from stemmatics.commands.fail_if import (
    DOES_NOT_HOLD,
    HOLDS,
    NOT_MEASURED,
    QUANTITIES,
    UNCLEAR,
    check_conditions,
    parse_conditions,
)
from stemmatics.core.errors import UserError
from stemmatics.core.results import Estimate, Refusal, Results


def estimate(value, lo, hi, *, quantity="loss.delta.byte", method="bootstrap", **subject):
    about = {"base": "base", "descendant": "d", "corpus": "text", "register": "all", **subject}
    return Estimate("loss", quantity, about, value, lo, hi, method=method, units="nats/byte")


@pytest.mark.parametrize(
    ("expression", "lo", "hi", "outcome"),
    [
        ("loss.delta > 0.02", 0.03, 0.05, HOLDS),
        ("loss.delta > 0.02", 0.01, 0.05, UNCLEAR),
        ("loss.delta > 0.02", -0.01, 0.02, DOES_NOT_HOLD),
        ("loss.delta >= .02", 0.02, 0.05, HOLDS),
        ("loss.delta<-2e-2", -0.05, -0.03, HOLDS),
        ("loss.delta < 0.02", -0.05, 0.03, UNCLEAR),
        ("loss.delta.byte <= 0.02", 0.03, 0.05, DOES_NOT_HOLD),
        ("loss.delta > 0.02", math.nan, math.nan, UNCLEAR),
    ],
)
def test_a_condition_holds_where_the_whole_interval_does(expression, lo, hi, outcome):
    (condition,) = parse_conditions([expression])
    assert condition.outcome(estimate(0.04, lo, hi)) == outcome


def test_a_number_that_is_exact_on_the_text_is_its_own_interval():
    (condition,) = parse_conditions(["divergence.kl_max > 2"])
    for value, outcome in ((3.0, HOLDS), (1.0, DOES_NOT_HOLD), (math.nan, UNCLEAR)):
        number = estimate(value, math.nan, math.nan, quantity="divergence.kl_max", method="exact")
        assert condition.outcome(number) == outcome


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("loss.dleta > 0.02", "Did you mean loss.delta"),
        ("loss.delta = 0.02", "can't read the condition"),
        ("loss.delta > two", "can't read the condition"),
        ("prior.delta[register=code] > 0", "not estimated by register"),
    ],
)
def test_what_is_no_condition_is_refused(expression, message):
    with pytest.raises(UserError, match=message) as error:
        parse_conditions([expression])
    assert error.value.code == 2


def test_every_descendant_and_corpus_is_checked_and_only_totals_count():
    results = Results(
        [
            estimate(0.05, 0.04, 0.06),
            estimate(0.01, 0.0, 0.02, corpus="text-2"),
            estimate(0.09, 0.08, 0.1, register="code"),
            estimate(0.0, -0.01, 0.01, descendant="e"),
            Refusal("loss", "loss.delta.byte", {"descendant": "e", "corpus": "text-2"}, "why not"),
        ]
    )
    registers = {"text": {"code", "prose"}, "text-2": {"prose"}}
    conditions = parse_conditions(["loss.delta > 0.03", "loss.delta[register=code] > 0.07"])
    checks = check_conditions(conditions, results, ["d", "e"], ["text", "text-2"], registers)
    assert [(check.condition.name, check.descendant, check.corpus, check.outcome) for check in checks] == [
        ("loss.delta", "d", "text", HOLDS),
        ("loss.delta", "d", "text-2", DOES_NOT_HOLD),
        ("loss.delta", "e", "text", DOES_NOT_HOLD),
        ("loss.delta", "e", "text-2", NOT_MEASURED),
        ("loss.delta", "d", "text", HOLDS),
        ("loss.delta", "e", "text", NOT_MEASURED),
    ]
    assert checks[3].reason == "why not"
    assert "why not" in checks[3].line()


def test_names_of_descendants_stay_distinct(tmp_path):
    assert named_descendants("org/a") == {"descendant": "org/a"}
    assert named_descendants(["org/a", "lab/a", "lab/a@main", "lab/a-2"]) == {
        "a": "org/a",
        "a-3": "lab/a",
        "a@main": "lab/a@main",
        "a-2": "lab/a-2",
    }
    assert list(named_descendants(["x/base", "y/base+z/adapter"])) == ["base-2", "adapter"]
    assert list(named_descendants(["x/a#model.safetensors", "x/b.gguf"])) == ["a", "b"]
    for wrong in ([], ["org/a", "org/a"]):
        with pytest.raises(UserError) as error:
            named_descendants(wrong)
        assert error.value.code == 2


@pytest.fixture(scope="module")
def registered(tmp_path_factory, tiny):
    """The tiny text in two registers."""
    rows = [json.loads(line) for line in (tiny / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    path = tmp_path_factory.mktemp("text") / "a.jsonl"
    lines = [json.dumps({**row, "kind": "odd" if i % 2 else "even"}) + "\n" for i, row in enumerate(rows)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def compare(tiny, registered, tmp_path_factory, stemma_command):
    out = tmp_path_factory.mktemp("runs") / "pair"

    def run(*args):
        named = ("--text", registered, "--register", "kind", "--only", "loss,divergence", "--out", out)
        return stemma_command("compare", tiny / "base", tiny / "tuned", tiny / "other", *named, *args)

    return run


def test_a_condition_that_holds_exits_with_3_and_says_which(compare):
    ran = compare("--json", "--fail-if", "divergence.kl > 0.0001", "--fail-if", "divergence.kl > 1000")
    assert ran.code == 3, ran.err
    outcomes = {(row["expression"], row["descendant"]): row["outcome"] for row in ran.json()["fail_if"]}
    assert outcomes == {
        ("divergence.kl > 0.0001", "tuned"): HOLDS,
        ("divergence.kl > 0.0001", "other"): HOLDS,
        ("divergence.kl > 1000", "tuned"): DOES_NOT_HOLD,
        ("divergence.kl > 1000", "other"): DOES_NOT_HOLD,
    }
    lines = [line for line in ran.err.splitlines() if line.startswith("--fail-if")]
    assert len(lines) == 2
    assert all("holds for" in line and "0.0001" in line for line in lines)


def test_a_condition_that_does_not_hold_exits_with_0(compare):
    ran = compare("--fail-if", "divergence.kl[register=odd] > 1000")
    assert ran.code == 0, ran.err
    assert "does not hold for tuned" in ran.out


def test_unclear_fails_only_where_that_is_asked_for(compare):
    estimates = compare("--json").json()["estimates"]
    (delta,) = [
        row
        for row in estimates
        if row["quantity"] == "loss.delta.byte"
        and row["subject"]["descendant"] == "tuned"
        and row["subject"]["register"] == "all"
    ]
    inside = f"loss.delta > {(delta['lo'] + delta['hi']) / 2:.9f}"
    assert compare("--fail-if", inside).code == 0
    ran = compare("--fail-if", inside, "--fail-on-unclear")
    assert ran.code == 3
    assert "unclear for tuned" in ran.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--fail-if", "loss.dleta > 1"], "unknown quantity"),
        (["--fail-if", "prior.delta > 1"], "Prior is not measured"),
        (["--fail-if", "recovery.residual > 1"], "Add --recover"),
        (["--fail-if", "loss.delta[register=prose] > 1"], "no text has the register 'prose'"),
        (["--fail-on-unclear"], "without --fail-if"),
        (["--only", "loss,sleep"], "'sleep'"),
        (["--only", ""], "no measure is named"),
    ],
)
def test_wrong_use_exits_with_2_before_weights_are_read(args, message, compare, monkeypatch):
    def read(*_args, **_settings):
        raise AssertionError("weights were read")

    monkeypatch.setattr("stemmatics.lm.checkpoints.pin.pin", read)
    ran = compare(*args)
    assert ran.code == 2, ran.err
    assert message in ran.err
    assert not ran.out


def test_a_text_that_can_not_be_read_is_refused_before_weights_are_read(
    tiny, tmp_path, stemma_command, monkeypatch
):
    def read(*_args, **_settings):
        raise AssertionError("weights were read")

    monkeypatch.setattr("stemmatics.lm.checkpoints.pin.pin", read)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": 1}\n', encoding="utf-8")
    for text in (broken, tmp_path / "missing.txt"):
        ran = stemma_command(
            "compare", tiny / "base", tiny / "tuned", "--text", text, "--out", tmp_path / "r"
        )
        assert ran.code in {1, 2}
        assert ran.err.splitlines()[-1].startswith("error: ")


def test_an_interrupt_exits_with_130(compare, monkeypatch):
    def interrupted(*_args, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("stemmatics.study.run.run", interrupted)
    ran = compare()
    assert ran.code == 130
    assert "interrupted" in ran.err


def test_a_condition_that_was_not_measured_exits_with_1(compare, monkeypatch):
    monkeypatch.setattr("stemmatics.commands.fail_if._is_total", lambda *_args: False)
    ran = compare("--fail-if", "divergence.kl > 1000")
    assert ran.code == 1
    assert "not measured for tuned" in ran.err


def test_the_help_lists_quantities_and_exit_statuses(stemma_command):
    printed = " ".join(stemma_command("compare", "--help").out.split())
    for name in QUANTITIES:
        assert name in printed
    assert "Exit status: 0 done" in printed


def test_every_quantity_of_a_condition_is_estimated(tiny, finished_run):
    """Names in conditions are names of results."""
    from stemmatics.store.ledger import Ledger
    from stemmatics.study.read import load_results

    ledger = Ledger(finished_run)
    results = load_results(ledger, ledger.manifest())
    stemma = pair_stemma(str(tiny / "base"), str(tiny / "tuned"), [tiny / "a.jsonl"])
    names = [name for name, quantity in QUANTITIES.items() if quantity.measure in stemma.measures]
    conditions = parse_conditions([f"{name} > 0" for name in names])
    checks = check_conditions(conditions, results, ["descendant"], ["text"], {"text": {"all"}})
    assert [check.condition.name for check in checks] == names
    assert not [check for check in checks if check.outcome == NOT_MEASURED]
