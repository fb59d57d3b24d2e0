"""Two runs made one, and those that do not belong together."""

import pytest
from tests.study.stored import estimates, manifest


def test_two_runs_merged_are_one_run_of_both(study, made, tmp_path, stemma_command):
    study("first", checkpoints=("base", "tuned"))
    study("second", checkpoints=("base", "other"))
    study("both", checkpoints=("base", "tuned", "other"))
    made.clear()
    joined = stemma_command("merge", tmp_path / "first", tmp_path / "second", "--out", tmp_path / "joined")
    assert joined.code == 0, joined.err
    assert made == []
    assert estimates(tmp_path / "joined") == estimates(tmp_path / "both")
    assert manifest(tmp_path / "joined")["digest"] == manifest(tmp_path / "both")["digest"]
    assert stemma_command("verify", tmp_path / "joined").code == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"corpora": ("b",)}, "the runs differ in corpora. Sums on different texts"),
        ({"scoring": {"prefix": "never"}}, "the runs differ in scoring"),
        ({"numerics": {"attention": "eager"}}, "the runs differ in numerics"),
        ({"measures": {"loss": {"checks": 1}}}, "the runs differ in measures"),
        ({"seed": 4}, "the runs differ in "),
        ({"checkpoints": ("base", "tuned"), "swap": True}, "'tuned' is not the same checkpoint in"),
    ],
    ids=["corpora", "scoring", "numerics", "measures", "seed", "weights"],
)
def test_runs_that_do_not_belong_together_are_not_merged(
    study, tiny, tmp_path, stemma_command, settings, says
):
    study("first", checkpoints=("base", "tuned"))
    settings = dict(settings)
    if settings.pop("swap", False):
        settings["checkpoints"] = ("base", "tuned")
        study("second", **settings)
        text = (tmp_path / "stemma.yaml").read_text().replace(str(tiny / "tuned"), str(tiny / "other"))
        (tmp_path / "stemma.yaml").write_text(text)
        ran = stemma_command("run", tmp_path / "stemma.yaml", "--out", tmp_path / "second")
        assert ran.code == 0
    else:
        study("second", **settings)
    ran = stemma_command("merge", tmp_path / "first", tmp_path / "second", "--out", tmp_path / "joined")
    assert (ran.code, ran.out) == (1, "")
    assert says.lower() in ran.err.lower()
    assert not (tmp_path / "joined").exists()


def test_a_merge_does_not_overwrite(finished_run, tmp_path, stemma_command):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    ran = stemma_command("merge", finished_run, finished_run, "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert "already exists" in ran.err
