"""The measure `prior` on hand-made sums: shares, parts, floors, labels, refusals, and their presentation."""

import numpy as np
import pytest
from tests.measure.prior_tables import (
    BASE,
    BIAS,
    INCREASE,
    INDEX,
    JOINT,
    NEW,
    NUM,
    OLD,
    SUBJECT,
    TEMPERATURE,
    TOKENS,
    FakeTables,
    made_base,
    made_descendant,
    put_corpus,
    put_model,
    results_of,
    tables_of,
)

from stemmatics.core.results import Results
from stemmatics.measure.prior.charts import charts
from stemmatics.measure.prior.estimate import pair_results
from stemmatics.measure.prior.sentences import LIMITS, failures, sentences
from stemmatics.measure.prior.sums import read_models
from stemmatics.measure.prior.tables import tables_of as report_tables
from stemmatics.report.printed import plain_cell

ARM = {"arm": "joint", "reading": "selected"}
FIVE = (0.2, 0.225, 0.25, 0.275, 0.3)
FLOORS = {"raw": (0.9, 0.95), "centred": FIVE}


def test_shares_are_sums_over_the_loss_increase():
    results = results_of(tables_of())
    increase = results.only("prior.delta")
    assert increase.value == pytest.approx(INCREASE.sum() / TOKENS.sum())
    assert increase.lo < increase.value < increase.hi
    for arm, recovered, net in (("joint", 0.7, 0.6), ("temperature", 0.5, 0.3), ("bias", 0.3, 0.25)):
        assert results.only("prior.recovered_share", arm=arm).value == pytest.approx(recovered)
        assert results.only("prior.net_recovered_share", arm=arm).value == pytest.approx(net)


def test_parts_split_the_net_share_and_add_up():
    results = results_of(tables_of())
    parts = {part: results.only("prior.part", part=part).value for part in ("temperature", "bias", "rest")}
    # Shapley of the net shares: temperature (0.3 + 0.6 - 0.25) / 2, bias what is left of 0.6
    assert parts == pytest.approx({"temperature": 0.325, "bias": 0.275, "rest": 0.4})
    assert results.only("prior.lead", part="rest", over="bias").value == pytest.approx(0.125)
    assert results.only("prior.lead", part="bias", over="rest").value == pytest.approx(-0.125)
    assert len(results.all("prior.lead")) == 6


def test_the_increase_on_all_ids_is_that_of_the_support_and_of_the_excluded_ids():
    old = made_base(excluded=0.01 * TOKENS)
    new = made_descendant(excluded=0.05 * TOKENS)
    results = results_of(tables_of(old, new))
    assert results.only("prior.excluded").value == pytest.approx(0.04)
    full, support = results.only("prior.delta_full").value, results.only("prior.delta").value
    assert full == pytest.approx(support + 0.04)


def test_sums_are_matched_by_document_whatever_the_order_of_rows():
    tables = FakeTables()
    # two EVAL documents a group; FIT documents have groups of their own
    put_corpus(tables, group_of=lambda index: f"fit{index}" if index % 2 else f"eval{index // 4}")
    draws = {(*JOINT, "one_step"): np.arange(60.0), (*JOINT, "full"): 100.0 + np.arange(4)}
    put_model(tables, OLD, made_base(draws=draws), order=np.random.default_rng(0).permutation(NUM))
    model = read_models(OLD, tables)["own"]
    assert model.index_D.tolist() == INDEX.tolist()
    assert model.group_D.tolist() == [f"eval{index // 4}" for index in INDEX]
    assert np.allclose(model.gain(JOINT), 0.1 * INCREASE)
    assert np.allclose(model.gain(BIAS), 0.05 * INCREASE)
    assert model.redrawn_gain(JOINT, "one_step") == pytest.approx(BASE.sum() - np.arange(60.0))
    assert model.redrawn_gain(JOINT, "full") == pytest.approx(BASE.sum() - 100.0 - np.arange(4))
    assert model.redrawn_gain(BIAS, "full").size == 0


def test_near_duplicates_are_resampled_together():
    tables = tables_of(new=made_descendant(noise=0.01))
    apart = results_of(tables).only("prior.net_recovered_share", **ARM)
    put_corpus(tables, group_of=lambda index: f"{index % 2}.{index // 4}")
    together = results_of(tables).only("prior.net_recovered_share", **ARM)
    assert (apart.n, apart.unit) == (NUM, "document")
    assert (together.n, together.unit) == (NUM // 2, "group of documents")
    assert together.value == pytest.approx(apart.value)


def test_a_share_that_varies_by_rounding_alone_has_limits():
    share = results_of(tables_of(new=made_descendant(noise=1e-9))).only("prior.net_recovered_share", **ARM)
    assert share.lo == pytest.approx(0.6, abs=1e-5)
    assert share.hi == pytest.approx(0.6, abs=1e-5)
    assert share.lo < share.hi


# redrawn fits


def with_draws(spread, full=20, far=False, base_spread=0.0):
    """Both models with redrawn joint fits whose net share has the standard deviation ``spread``."""
    random_R = np.random.default_rng(2).normal(size=100)
    new, old = made_descendant(noise=0.01), made_base()
    total = INCREASE.sum()
    # the same draw moves base and descendant together; only the difference counts
    old_R = BASE.sum() - old.gains[JOINT].sum() - base_spread * total * random_R
    new_R = new.nll.sum() - new.gains[JOINT].sum() - (base_spread + spread) * total * random_R
    for made, draws_R in ((old, old_R), (new, new_R)):
        refits_R = draws_R[:full][::-1] if far and made is new else draws_R[:full]
        made.draws = {(*JOINT, "one_step"): draws_R, (*JOINT, "full"): refits_R}
    return old, new


def test_redrawn_fits_widen_the_interval():
    results = results_of(tables_of(*with_draws(0.05)))
    held = results.only("prior.net_recovered_share", **ARM)
    redrawn = results.only("prior.net_recovered_share_redrawn", **ARM)
    assert redrawn.value == held.value
    # about 1.96 standard deviations of the draws, in quadrature with the held interval
    reach = np.hypot(held.hi - held.value, 1.96 * 0.05)
    assert redrawn.hi - redrawn.value == pytest.approx(reach, rel=0.2)
    assert held.hi - held.value < 0.02
    assert results.all("prior.net_recovered_share_redrawn", arm="bias") == []


def test_redrawn_fits_of_base_and_descendant_are_paired():
    paired = results_of(tables_of(*with_draws(0.05, base_spread=3.0)))
    plain = results_of(tables_of(*with_draws(0.05)))
    ends = [each.only("prior.net_recovered_share_redrawn", **ARM).hi for each in (paired, plain)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)


@pytest.mark.parametrize(("far", "word"), [(False, "close to full refits"), (True, "far from full refits")])
def test_redrawn_fits_are_compared_with_full_refits(far, word):
    results = results_of(tables_of(*with_draws(0.05, far=far)))
    agreement = results.category("prior.refit.agreement", **ARM)
    assert (agreement.value, agreement.n, agreement.tag) == (word, 20, "control")
    rms = results.only("prior.refit.rms", **ARM)
    assert (rms.n, rms.unit) == (20, "refit")
    assert rms.value == pytest.approx(0.0, abs=1e-9) if not far else rms.value > 0.03
    assert results.only("prior.refit.sd", **ARM).value == pytest.approx(0.05, rel=0.4)
    (table,) = [t for t in report_tables(results, [SUBJECT], 64) if t.name.startswith("prior/arms")]
    assert ("redrawn fits far from full refits" in table.rows[0][-1]) is far


# damage floors and labels


def test_a_floor_is_the_range_over_seeds_of_each_kind_of_noise():
    results = results_of(tables_of(floor=FLOORS, failures={"raw": "no root"}))
    recovered = results.only("prior.floor.recovered_share", **ARM, kind="centred")
    assert (recovered.lo, recovered.value, recovered.hi) == pytest.approx((0.2, 0.25, 0.3))
    # the base's own correction recovers 0.1 of the same increase
    net = results.only("prior.floor.net_recovered_share", **ARM, kind="centred")
    assert (net.lo, net.value, net.hi) == pytest.approx((0.1, 0.15, 0.2))
    raw = results.only("prior.floor.net_recovered_share", **ARM, kind="raw")
    assert (raw.lo, raw.hi) == pytest.approx((0.8, 0.85))
    assert (net.n, net.unit, net.method, net.tag, net.level) == (5, "seed", "range over seeds", "floor", 1.0)
    sigma = results.only("prior.sigma", kind="centred", seed="1")
    assert (sigma.value, sigma.unit, sigma.n) == (0.2, "seed", 1)
    assert results.refusal("prior.sigma", kind="raw", seed="9").reason == "no root"


def test_the_mean_energy_is_the_base_s():
    new = made_descendant(metadata={"mean_state_energy": 7.0, "state_energy": 8.0})
    assert results_of(tables_of(new=new, floor=FLOORS)).only("prior.mean_energy").value == 0.25


@pytest.mark.parametrize(
    ("mean", "spread", "label"),
    [
        (0.3, 0.01, "above damage"),
        (0.3, 0.2, "not distinguished from damage"),
        (0.69, 0.01, "not distinguished from damage"),
        (0.9, 0.01, "below damage"),
        (0.9, 0.2, "not distinguished from damage"),
    ],
)
def test_a_share_is_labelled_against_the_centred_floor(mean, spread, label):
    """The joint net share is 0.6; the base's own correction takes 0.1 off every floor."""
    centred = tuple(mean + spread * step for step in (-2, -1, 0, 1, 2))
    for raw in ((0.0, 0.1), (1.5, 1.6)):
        new = made_descendant(noise=0.04)
        results = results_of(tables_of(new=new, floor={"raw": raw, "centred": centred}))
        difference = results.only("prior.over_damage", **ARM)
        share = results.only("prior.net_recovered_share", **ARM)
        assert difference.value == pytest.approx(share.value - (mean - 0.1))
        category = results.category("prior.label", **ARM)
        assert category.value == label
        assert category.reason
        prose = " ".join(sentence.plain(results) for sentence in sentences(results, [SUBJECT]))
        assert f"({label})" in prose
        for other in {"above damage", "below damage", "not distinguished from damage"} - {label}:
            assert f"({other})" not in prose


def test_fewer_seeds_of_the_same_scatter_never_add_a_label():
    """Two and one seed at the mean and spread of five that give a label."""
    for centred in ((0.2, 0.3), (0.25,)):
        results = results_of(tables_of(floor={"raw": (0.9,), "centred": centred}))
        label = results.category("prior.label", **ARM)
        assert label is None or label.value == "not distinguished from damage"
    assert "scatter between damaged bases" in results.refusal("prior.label", **ARM).reason
    prose = [sentence.plain(results) for sentence in sentences(results, [SUBJECT])]
    assert not any("above damage" in text or "below damage" in text for text in prose)


def test_redrawn_fits_decide_no_label():
    """Else leaving them out, which is less evidence, would give labels."""
    floor = {"raw": (0.0, 0.0), "centred": (0.5, 0.51, 0.52, 0.53, 0.54)}
    old, new = with_draws(0.2)
    with_fits_redrawn = results_of(tables_of(old, new, floor=floor))
    old.draws, new.draws = {}, {}
    without = results_of(tables_of(old, new, floor=floor))
    first, second = (each.only("prior.over_damage", **ARM) for each in (with_fits_redrawn, without))
    assert (first.lo, first.hi) == (second.lo, second.hi)
    assert with_fits_redrawn.category("prior.label", **ARM).value == "above damage"
    assert without.category("prior.label", **ARM).value == "above damage"


def test_a_label_without_a_floor_is_refused_with_the_reason():
    results = results_of(tables_of(floor={"raw": (0.2,)}, failures={"centred": "the soft cap"}))
    assert results.refusal("prior.label", **ARM).reason == "the damage floor is unknown: the soft cap"
    results = results_of(tables_of(floor={}, refusal="no noise"))
    assert results.refusal("prior.label", **ARM).reason == "the damage floor is unknown: no noise"
    assert not results_of(tables_of()).categories("prior.label")


# refusals


@pytest.mark.parametrize(
    ("sign", "spread", "reason"),
    [(0.0, 0.3, "contains 0"), (-1.0, 0.0, "the descendant improved")],
)
def test_no_share_where_nothing_was_lost(sign, spread, reason):
    increase = sign * INCREASE + TOKENS * np.random.default_rng(5).normal(0.0, spread, NUM)
    old, new = with_draws(0.05)
    new.nll = BASE + increase
    results = results_of(tables_of(old, new, floor=FLOORS))
    assert results.only("prior.delta").value == pytest.approx(increase.sum() / TOKENS.sum())
    shares = ("recovered_share", "net_recovered_share", "part", "lead", "label")
    for quantity in (*(f"prior.{name}" for name in shares), "prior.net_recovered_share_redrawn"):
        refusals = results.refusals(quantity)
        assert refusals, quantity
        assert all(reason in refusal.reason for refusal in refusals)
        assert results.all(quantity) == []
    assert results.categories("prior.label") == []
    prose = [sentence.plain(results) for sentence in sentences(results, [SUBJECT])]
    assert len(prose) == 1 + len(LIMITS)
    assert "no recovered share" in prose[0]
    assert reason in prose[0]
    for absent in ("of the increase, and", "accounts for", "still rising", "damage to the base such"):
        assert not any(absent in text for text in prose)
    assert charts(results, [SUBJECT], 64) == []
    arms = next(t for t in report_tables(results, [SUBJECT], 64) if t.name == "prior/arms/text/new")
    assert all(reason in row[-1] for row in arms.rows)


def test_an_unknown_interval_of_the_increase_gives_no_share():
    """One group of near-duplicates: nothing to resample."""
    tables = tables_of()
    put_corpus(tables, group_of=lambda _index: "all")
    refusal = results_of(tables).refusal("prior.net_recovered_share", **ARM)
    assert refusal.reason == "the interval of the loss increase is unknown (fewer than two units)"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"token_ids_sha256": "other"}, "the tokenizers differ"),
        ({"prefix_id": None}, "the prefix ids differ (0 and None)"),
        ({"dtype": "bfloat16"}, "different precision (float32 and bfloat16)"),
        ({"refusal": "no head"}, "no head"),
    ],
)
def test_a_pair_that_can_not_be_compared_is_refused(changes, reason):
    results = results_of(tables_of(new=made_descendant(metadata=changes), floor=FLOORS))
    (refusal,) = results.values()
    assert refusal.id == "prior.delta/base=old/corpus=text/descendant=new"
    assert reason in refusal.reason
    (sentence, *_) = sentences(results, [SUBJECT])
    assert sentence.plain(results) == f"new could not be compared with old on text: {refusal.reason}."
    assert failures(results, [SUBJECT]) == [f"old → new on text: {refusal.reason}"]
    assert [table.name for table in report_tables(results, [SUBJECT], 64)] == ["prior/summary/text"]


def test_documents_of_other_lengths_are_refused():
    new = made_descendant(tokens=TOKENS + (np.arange(NUM) == 3))
    (refusal,) = results_of(tables_of(new=new)).refusals("prior.delta")
    assert "the same tokens in every document" in refusal.reason


# what is said


def with_fits():
    """Fits with certificates, losses, temperatures and flags."""
    losses = {"fit_nll_sum": 30.0, "num_fit_tokens": 10, "held_nll_sum": 12.0, "num_held_tokens": 3}
    certificate = {"penalty": 0.5, "gap": 1e-11, "gradient_norm": 1e-6, **losses}
    old = made_base(fits={JOINT: {**certificate, "inverse_temperature": 0.8, "flags": ["at_edge", "capped"]}})
    new = made_descendant(
        noise=0.05,
        fits={
            JOINT: {**certificate, "inverse_temperature": 0.5, "flags": ["not_converged"]},
            TEMPERATURE: {"inverse_temperature": 0.5},
        },
        metadata={"note": "all 9 ids are free"},
    )
    return old, new


def test_fits_are_given_with_their_flags_as_categories():
    results = results_of(tables_of(*with_fits()))
    joint = {**ARM, "side": "base"}
    values = {
        name: results.only(f"prior.fit.{name}", **joint).value
        for name in ("temperature", "penalty", "gap", "gradient", "fit_loss", "held_loss")
    }
    expected = {"temperature": 1.25, "penalty": 0.5, "gap": 1e-11, "gradient": 1e-6, "fit_loss": 3.0}
    assert values == pytest.approx({**expected, "held_loss": 4.0})
    assert results.find("prior.fit.gap", arm="bias") is None
    flags = results.categories("prior.fit.flags")
    assert [(flag.subject["side"], flag.value) for flag in flags] == [
        ("base", "at edge"),
        ("base", "capped"),
        ("descendant", "not converged"),
    ]
    assert all(flag.reason and flag.subject["arm"] == "joint" for flag in flags)
    notes = {side: results.only("prior.fit.gap", side=side).note for side in ("base", "descendant")}
    assert notes == {"base": "", "descendant": "all 9 ids are free"}


def table_of(results, name):
    (table,) = (table for table in report_tables(results, [SUBJECT], 64) if table.name == name)
    return [[plain_cell(cell, results) for cell in row] for row in table.rows], table


def test_tables_print_each_share_beside_its_floor():
    results = results_of(tables_of(*with_fits(), floor=FLOORS))
    names = [table.name for table in report_tables(results, [SUBJECT], 64)]
    assert names == [
        *(f"prior/{name}/text" for name in ("summary", "parts", "support")),
        *(f"prior/{name}/text/new" for name in ("arms", "fits")),
    ]
    rows, _ = table_of(results, "prior/arms/text/new")
    assert [row[0] for row in rows] == ["joint_64, selected", "temperature, selected", "bias_64, selected"]
    assert rows[0] == [
        "joint_64, selected",
        *("+0.700", "+0.250", "+0.600", "n/a", "+0.150", "+0.825"),
        *("above damage", "1.250", "2.000", "base: at edge; base: capped; descendant: not converged"),
    ]
    ((_, _, increase, *shares, label),), _ = table_of(results, "prior/summary/text")
    assert increase == f"{INCREASE.sum() / TOKENS.sum():+.4f}"
    assert shares == ["+0.600", "+0.300", "+0.250"]
    assert label == "above damage"
    (parts,), _ = table_of(results, "prior/parts/text")
    assert parts == ["new", "+0.325", "+0.275", "+0.400"]
    rows, _ = table_of(results, "prior/fits/text/new")
    assert rows[1] == ["new", "joint_64, selected", "3.00000", "4.00000", "0.5", "1.0e-11", "1.0e-06"]


def test_arms_stand_in_one_order_with_the_selected_reading_first():
    # the store's order: the optimum first, ceilings last
    arms = [("bias", "optimum"), BIAS, ("joint", "optimum"), JOINT, ("cf_0.1", ""), ("ipf_top", "")]
    gains = dict.fromkeys([*arms, ("affine_full", ""), ("in_sample_joint", "")], 0.4 * INCREASE)
    none = dict.fromkeys(gains, np.zeros(NUM))
    rows, _ = table_of(
        results_of(tables_of(made_base(gains=none), made_descendant(gains=gains))), "prior/arms/text/new"
    )
    assert [row[0] for row in rows] == [
        *("joint_64, selected", "joint_64, optimum", "bias_64, selected", "bias_64, optimum"),
        *("ipf_top64", "affine_full", "cf_0.1", "in_sample_joint"),
    ]


def test_the_shown_share_is_the_one_with_redrawn_fits():
    old, new = with_draws(0.05)
    results = results_of(tables_of(old, new, floor=FLOORS))
    redrawn = results.only("prior.net_recovered_share_redrawn", **ARM)
    _, summary = table_of(results, "prior/summary/text")
    assert summary.rows[0][3].result == redrawn.id
    prose = sentences(results, [SUBJECT])
    assert prose[0].values["net_lo"].result == prose[1].values["net_lo"].result == redrawn.id
    recovered = results.only("prior.recovered_share_redrawn", **ARM)
    assert prose[0].values["recovered_lo"].result == prose[1].values["recovered_lo"].result == recovered.id
    for sentence in prose[:2]:
        assert "(intervals with the fits redrawn)" in sentence.plain(results)
        assert "fits held" not in sentence.plain(results)
    (chart,) = charts(results, [SUBJECT], 64)
    assert points_of(chart)["joint_64, selected"]["hi"] == redrawn.hi
    _, refits = table_of(results, "prior/refits/text")
    assert [row[1] for row in refits.rows] == ["joint"]


def test_sentences_give_every_share_with_its_floor_and_label():
    results = results_of(tables_of(*with_fits(), floor=FLOORS))
    short, pair, parts, *limits = sentences(results, [SUBJECT])
    assert (short.topic, pair.topic) == ("summary", "prior")
    for sentence in (short, pair):
        text = sentence.plain(results)
        assert "recover +0.700 [" in text
        assert "and +0.600 [" in text
        assert "less what such a fit to the base recovers (intervals with the fits held)" in text
        assert text.endswith(
            "such fits recover, less the same, +0.100 to +0.200 over 5 seeds (above damage)."
        )
        assert "fits redrawn" not in text
        assert sentence.values["label"].result == results.category("prior.label", **ARM).id
    assert "accounts for +0.325 [" in parts.plain(results)
    assert "a bias for +0.275 [" in parts.plain(results)
    assert "; net, +0.400 [" in parts.plain(results)
    tokens = results.only("prior.fit.tokens", **ARM, side="descendant")
    assert f"not recovered by these fits on {tokens.value:,.0f} tokens" in parts.plain(results)
    assert not any("context-dependent" in s.plain(results) for s in (short, pair, parts))
    assert not any("depends on context" in s.plain(results) for s in (short, pair, parts, *limits))
    # what is not so here is not said
    for absent in ("could not be compared", "no recovered share", "still rising", "unknown", "below damage"):
        assert not any(absent in s.plain(results) for s in (short, pair, parts, *limits))
    assert tuple(sentence.text for sentence in limits) == LIMITS
    assert sentences(results, [{**SUBJECT, "descendant": "another"}]) == []


def test_a_sentence_says_why_a_share_has_no_label():
    results = results_of(tables_of())
    (short, *_) = sentences(results, [SUBJECT])
    assert short.plain(results).endswith("; the damage floor is unknown: none was measured.")
    results = results_of(tables_of(floor={}, failures={"centred": "the soft cap"}))
    (short, *_) = sentences(results, [SUBJECT])
    assert short.plain(results).endswith("; the damage floor is unknown: the soft cap.")


def test_no_amount_of_text_is_named_that_the_fits_do_not_tell():
    old, new = with_fits()
    new.fits = {}
    results = results_of(tables_of(old, new, floor=FLOORS))
    (parts,) = (s for s in sentences(results, [SUBJECT]) if "accounts for" in s.plain(results))
    assert parts.plain(results).endswith("is not recovered by these fits.")


def points_of(chart):
    """Drawn points by arm."""
    points = max(chart.spec["datasets"].values(), key=len)
    return {point["arm"]: point for point in points}


def test_the_figure_shows_the_centred_floor_and_no_ceiling():
    old, new = with_fits()
    for made in (old, new):
        made.gains |= {("in_sample", ""): 0.9 * INCREASE}
        made.fits[("in_sample", "")] = {"bound_nll_sum": 0.5 * INCREASE.sum()}
    results = results_of(tables_of(old, new, floor=FLOORS))
    assert results.only("prior.bound").value == pytest.approx(0.5)
    assert results.find("prior.floor.net_recovered_share", arm="in_sample") is None
    assert results.category("prior.label", arm="in_sample") is None
    assert results.refusal("prior.label", arm="in_sample") is None
    (chart,) = charts(results, [SUBJECT], 64)
    assert chart.name == "prior/shares/text/new"
    points = points_of(chart)
    assert list(points) == [
        "joint_64, selected (T 1.25, 2.00)",
        "temperature, selected (T 1.00, 2.00)",
        "bias_64, selected",
    ]
    joint = points["joint_64, selected (T 1.25, 2.00)"]
    assert (joint["value"], joint["floor_lo"], joint["floor_hi"]) == pytest.approx((0.6, 0.1, 0.2))


def test_an_infimum_that_leaves_targets_of_eval_out_has_no_share_and_says_why():
    """Its fits are given; sums on EVAL there are none."""
    arm = {"arm": "joint", "reading": "optimum"}
    fit = {"fit_nll_sum": 30.0, "num_fit_tokens": 10, "gap": 1e-11, "flags": ["infimum"]}
    old, new = made_base(), made_descendant()
    for made in (old, new):
        made.only_fitted = {("joint", "optimum"): fit}
    results = results_of(tables_of(old, new, floor=FLOORS))
    for name in ("recovered_share", "net_recovered_share"):
        assert "no probability" in results.refusal(f"prior.{name}", **arm).reason
        assert results.find(f"prior.{name}", **arm) is None
    assert results.only("prior.fit.fit_loss", **arm, side="base").value == 3.0
    assert {flag.value for flag in results.categories("prior.fit.flags", **arm)} == {"infimum"}
    rows, _ = table_of(results, "prior/arms/text/new")
    row = next(row for row in rows if row[0] == "joint_64, optimum")
    assert row[1] == row[3] == "n/a"
    assert "no probability" in row[-1]
    # a share that EVAL gives is not refused
    assert results.refusal("prior.net_recovered_share", **ARM) is None


# amounts of text


def with_parts(quarter=0.3, half=0.45, spread=0.02, half_spread=0.0, **draws):
    """What joint fits of the descendant recover on a quarter and on half of FIT; it is 0.7 on all of it."""
    old, new = with_draws(spread, full=0)
    tokens = {"quarter": (9, 1), "half": (18, 2), "selected": (36, 4)}
    for made, shares in ((old, (0.1, 0.1)), (new, (quarter, half))):
        for reading, share in zip(("quarter", "half"), shares, strict=True):
            made.gains["joint", reading] = share * INCREASE
        for reading, (num_fit, num_held) in tokens.items():
            losses = {"fit_nll_sum": 30.0, "num_fit_tokens": num_fit, "num_held_tokens": num_held}
            made.fits["joint", reading] = losses
        if draws.get("redrawn", True):
            noise_R = np.random.default_rng(8).normal(0.0, half_spread, 100) * INCREASE.sum()
            whole_R = made.draws[*JOINT, "one_step"]
            move = made.gains[JOINT].sum() - made.gains["joint", "half"].sum()
            made.draws["joint", "half", "one_step"] = whole_R + move + (noise_R if made is new else 0.0)
        else:
            made.draws = {}
    return old, new


def rising(results):
    return [s.plain(results) for s in sentences(results, [SUBJECT]) if "rising" in s.plain(results)]


def test_shares_are_given_at_three_amounts_of_text_and_a_rise_is_said():
    results = results_of(tables_of(*with_parts(), floor=FLOORS))
    for share, rise in (("recovered_share", 0.25), ("net_recovered_share", 0.25)):
        assert results.only("prior.rise", of=share).value == pytest.approx(rise)
        assert results.category("prior.text", of=share).value == "still rising"
    found = results.only("prior.rise", of="net_recovered_share")
    assert "redrawn" in found.method
    (text,) = rising(results)
    assert text == (
        f"The net recovered share of new is still rising: it rose by +0.250 [{found.lo:+.3f}, "
        f"{found.hi:+.3f}] from 20 to 40 tokens of FIT, so more text may recover more."
    )
    rows, _ = table_of(results, "prior/text/text")
    assert [row[1:4] for row in rows] == [
        ["a quarter of FIT", "10", "+0.300"],
        ["half of FIT", "20", "+0.450"],
        ["all of FIT", "40", "+0.700"],
    ]
    assert [row[4:] for row in rows] == [
        ["", "+0.200", "", ""],
        ["", "+0.350", "", ""],
        ["+0.250", "+0.600", "+0.250", "still rising"],
    ]
    # a fit on less text is no arm of its own: no label, no row among the arms
    assert results.category("prior.label", arm="joint", reading="half") is None
    assert results.refusal("prior.label", arm="joint", reading="half") is None
    rows, _ = table_of(results, "prior/arms/text/new")
    assert not any("half" in row[0] for row in rows)
    _, chart = charts(results, [SUBJECT], 64)
    assert chart.name == "prior/text/text"
    points = next(iter(chart.spec["datasets"].values()))
    assert [(point["tokens"], round(point["share"], 6)) for point in points] == [
        (10, 0.2),
        (20, 0.35),
        (40, 0.6),
    ]


@pytest.mark.parametrize(
    "parts", [{"half": 0.7}, {"half": 0.8}, {"half": 0.69, "half_spread": 0.2}, {"redrawn": False}, None]
)
def test_a_share_is_not_called_rising_without_a_whole_interval_above_zero(parts):
    """No rise, a fall, a rise within its interval, fits that were not redrawn, no smaller parts."""
    old, new = with_draws(0.02) if parts is None else with_parts(**parts)
    results = results_of(tables_of(old, new, floor=FLOORS))
    assert rising(results) == []
    assert all(word.value == "not seen to rise" for word in results.categories("prior.text"))
    if parts == {"redrawn": False}:
        assert "no fits were redrawn" in results.refusal("prior.text", of="net_recovered_share").reason


def test_the_rise_pairs_the_draws_of_both_amounts():
    """A draw that moves both amounts alike moves no rise."""
    results = results_of(tables_of(*with_parts(spread=0.3)))
    rise = results.only("prior.rise", of="net_recovered_share")
    share = results.only("prior.net_recovered_share_redrawn", **ARM)
    assert rise.hi - rise.lo < 0.1 * (share.hi - share.lo)


def test_parts_have_the_fits_redrawn_where_all_three_were():
    old, new = with_draws(0.05)
    held = results_of(tables_of(old, new))
    for made in (old, new):
        for arm in (BIAS, TEMPERATURE):
            made.draws[*arm, "one_step"] = np.full(100, (made.nll - made.gains[arm]).sum())
    redrawn = results_of(tables_of(old, new))
    for part, sd in (("rest", 0.05), ("temperature", 0.025), ("bias", 0.025)):
        first, second = (each.only("prior.part", part=part) for each in (held, redrawn))
        assert "redrawn" not in first.method
        assert "redrawn" in second.method
        assert second.hi - second.value == pytest.approx(np.hypot(first.hi - first.value, 1.96 * sd), rel=0.2)
    lead = redrawn.only("prior.lead", part="temperature", over="bias")
    # the joint fit's draws move both alike
    assert lead.hi - lead.lo == pytest.approx(
        held.only("prior.lead", part="temperature", over="bias").hi
        - held.only("prior.lead", part="temperature", over="bias").lo,
        rel=1e-6,
    )


# several pairs


def several(num):
    """The same pair under other names, each with another share."""
    found, pairs = [], []
    for number in range(num):
        subject = {**SUBJECT, "descendant": f"new-{number}"}
        gains = dict.fromkeys((BIAS, TEMPERATURE, JOINT), (0.2 + 0.1 * number) * INCREASE)
        tables = tables_of(new=made_descendant(gains=gains))
        found += pair_results(subject, (OLD, NEW), None, tables, np.random.default_rng(0))
        pairs.append(subject)
    return Results(found), pairs


def test_no_pair_is_picked_by_its_share():
    results, pairs = several(3)
    summary = [s for s in sentences(results, pairs) if s.topic == "summary"]
    # all of them, in the order that they were declared
    assert [s.values["descendant"] for s in summary] == ["new-0", "new-1", "new-2"]
    prose = " ".join(s.plain(results) for s in sentences(results, pairs))
    for word in ("largest", "most", "best", "highest", "smallest"):
        assert word not in prose
    results, pairs = several(5)
    assert [s for s in sentences(results, pairs) if s.topic == "summary"] == []
    assert sum("recover +" in s.plain(results) for s in sentences(results, pairs)) == 5
