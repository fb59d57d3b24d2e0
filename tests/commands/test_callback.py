"""The callback in real training runs of transformers and TRL, on models of 30,000 parameters."""

import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

import stemmatics as st
from stemmatics.commands.callback import Watched
from stemmatics.core.errors import UserError
from stemmatics.train.trackers import TRACKERS, log_to_trackers

ROWS = [{"text": f"the dog number {number} ran far away from the cat on the mat"} for number in range(64)]


@pytest.fixture
def loaded(tiny):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny / "base")
    tokenizer.pad_token = tokenizer.eos_token
    return AutoModelForCausalLM.from_pretrained(tiny / "base"), tokenizer


def arguments(folder, **changes):
    from transformers import TrainingArguments

    settings = {
        "output_dir": str(folder),
        "max_steps": 8,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "report_to": "none",
        "save_steps": 4,
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 3,
    }
    return TrainingArguments(**settings | changes)


def train(loaded, folder, callbacks, **changes):
    from transformers import DataCollatorForLanguageModeling, Trainer

    model, tokenizer = loaded
    rows = Dataset.from_list(ROWS).map(
        lambda row: tokenizer(row["text"], truncation=True, max_length=48), remove_columns=["text"]
    )
    trainer = Trainer(
        model,
        arguments(folder, **changes),
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
        callbacks=callbacks,
    )
    trainer.train()
    return trainer


def weights(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def test_a_run_is_watched_and_its_last_values_are_those_of_compare(tiny, loaded, tmp_path, stemma_command):
    callback = st.StemmaCallback(str(tiny / "base"), tiny / "a.jsonl", every=3, max_doc_tokens=64)
    trainer = train(loaded, tmp_path / "out", [callback])
    assert [watched.step for watched in callback.history] == [3, 6, 8]
    last = callback.history[-1].values
    assert last["stemma/loss_delta_lo"] < last["stemma/loss_delta"] < last["stemma/loss_delta_hi"]
    assert last["stemma/kl"] > 0
    assert 0 < last["stemma/same_top1"] < 1
    logged = [entry for entry in trainer.state.log_history if "stemma/kl" in entry]
    assert [entry["step"] for entry in logged] == [3, 6, 8]
    folder = tmp_path / "out" / "stemma"
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [line["stemma/loss_delta"] for line in lines] == [
        watched.values["stemma/loss_delta"] for watched in callback.history
    ]
    sums = pq.read_table(folder / "sums" / "step-8.parquet").to_pydict()
    change = sum(sums["nll_sum"]) - sum(sums["base_nll_sum"])
    assert last["stemma/loss_delta"] == pytest.approx(change / sum(sums["num_bytes"]), rel=1e-12)
    # the same comparison by the command, on the same documents: the whole text is in the sample
    final = tmp_path / "final"
    trainer.save_model(str(final))
    run = tmp_path / "run"
    words = ("compare", tiny / "base", final, "--text", tiny / "a.jsonl", "--only", "loss,divergence")
    assert stemma_command(*words, "--out", run, "--max-doc-tokens", 64).code == 0
    estimates = st.load_run(run).estimates
    kl = next(value for name, value in estimates.items() if name.startswith("divergence.kl/"))
    assert last["stemma/kl"] == pytest.approx(kl.value, rel=1e-4)


def test_training_goes_as_without_the_callback(tiny, loaded, tmp_path):
    from transformers import AutoModelForCausalLM

    model, tokenizer = loaded
    train((model, tokenizer), tmp_path / "watched", [st.StemmaCallback(None, tiny / "a.jsonl", every=1)])
    alone = AutoModelForCausalLM.from_pretrained(tiny / "base")
    train((alone, tokenizer), tmp_path / "alone", [])
    expected = weights(alone)
    for name, tensor in weights(model).items():
        assert tensor.equal(expected[name]), name
    assert model.training == alone.training


def test_the_start_of_training_is_the_base_where_none_is_named(tiny, loaded, tmp_path):
    model, _ = loaded
    before = weights(model)
    callback = st.StemmaCallback(None, tiny / "a.jsonl", every=8)
    train(loaded, tmp_path / "out", [callback])
    assert any(not tensor.equal(before[name]) for name, tensor in weights(model).items())
    values = callback.history[-1].values
    assert values["stemma/loss_delta"] != 0
    # the head in training must not stand in for the base's
    assert values["stemma/kl"] > 1e-4
    named = st.StemmaCallback(str(tiny / "base"), tiny / "a.jsonl", every=8)
    from transformers import AutoModelForCausalLM

    again = AutoModelForCausalLM.from_pretrained(tiny / "base")
    train((again, loaded[1]), tmp_path / "again", [named])
    assert dict(named.history[-1].values) == pytest.approx(dict(values), rel=1e-6)


def test_the_study_of_the_saved_checkpoints_runs(tiny, loaded, tmp_path, stemma_command):
    callback = st.StemmaCallback(str(tiny / "base"), tiny / "a.jsonl")
    train(loaded, tmp_path / "out", [callback])
    study = tmp_path / "out" / "stemma" / "stemma.yaml"
    ran = stemma_command("run", study, "--out", tmp_path / "run", "--json")
    assert ran.code == 0
    names = set(st.load_run(tmp_path / "run").estimates)
    for step in (4, 8):
        assert any(f"step-{step}" in name for name in names)


def test_an_adapter_in_a_trainer_of_trl(tiny, loaded, tmp_path):
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    model, tokenizer = loaded
    callback = st.StemmaCallback(str(tiny / "base"), tiny / "a.jsonl", every=2)
    settings = {
        "output_dir": str(tmp_path / "out"),
        "max_steps": 4,
        "report_to": "none",
        "use_cpu": True,
        "learning_rate": 5e-2,
        "save_steps": 4,
        "max_length": 48,
        "disable_tqdm": True,
    }
    trainer = SFTTrainer(
        model,
        SFTConfig(**settings),
        train_dataset=Dataset.from_list(ROWS),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
        callbacks=[callback],
    )
    trainer.train()
    assert [watched.step for watched in callback.history] == [2, 4]
    assert all(watched.values["stemma/kl"] > 0 for watched in callback.history)
    text = (tmp_path / "out" / "stemma" / "stemma.yaml").read_text()
    assert f"{tiny / 'base'}+" in text


def test_other_tokens_leave_the_divergence_unknown(tiny, loaded, tmp_path):
    callback = st.StemmaCallback(str(tiny / "base"), tiny / "a.jsonl", every=8)
    model, tokenizer = loaded
    tokenizer.bos_token = None
    tokenizer.add_tokens(["the dog"])
    model.resize_token_embeddings(len(tokenizer))
    train((model, tokenizer), tmp_path / "out", [callback])
    values = callback.history[-1].values
    assert math.isfinite(values["stemma/loss_delta"])
    assert math.isnan(values["stemma/kl"])
    line = (tmp_path / "out" / "stemma" / "history.jsonl").read_text()
    assert json.loads(line)["stemma/kl"] is None


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_evaluations_keep_to_their_share_of_the_time(tiny):
    clock = Clock()
    callback = st.StemmaCallback("base", tiny / "a.jsonl", max_share=0.02, clock=clock)
    # the base took 1 s, so that two more fit after 150 s
    callback._seconds = 1.0
    due = []
    for step in range(1, 1001):
        clock.now += 1.0
        if callback.is_due(step):
            due.append(step)
            callback._seconds += 1.0
            callback.history.append(Watched(step, None, 1.0, {}))
    assert due[0] == 150
    assert len(due) == 18
    # with the last one, after 1,000 s
    assert callback.seconds + 1.0 <= 0.02 * 1000


@pytest.mark.parametrize(
    ("settings", "reason"), [({"every": 0}, "every=0"), ({"max_share": 1.5}, "max_share=1.5")]
)
def test_settings_that_make_no_sense_are_refused(tiny, settings, reason):
    with pytest.raises(UserError, match=reason):
        st.StemmaCallback("base", tiny / "a.jsonl", **settings)


def test_parameters_spread_over_processes_are_refused(tiny, loaded, tmp_path):
    model, _ = loaded
    next(model.parameters()).ds_id = 0
    callback = st.StemmaCallback(None, tiny / "a.jsonl")
    with pytest.raises(UserError, match="spread over processes"):
        callback.on_train_begin(arguments(tmp_path), None, None, model=model)


def test_a_tracker_that_fails_does_not_end_the_training(monkeypatch, caplog):
    def broken(_args, _values, _step):
        message = "no connection"
        raise RuntimeError(message)

    seen = []
    monkeypatch.setitem(TRACKERS, "wandb", broken)
    monkeypatch.setitem(TRACKERS, "trackio", lambda _args, values, step: seen.append((dict(values), step)))
    args = SimpleNamespace(report_to=["wandb", "unknown", "trackio"])
    log_to_trackers(args, {"stemma/kl": 0.5, "stemma/loss_delta": math.nan}, 7)
    assert seen == [({"stemma/kl": 0.5}, 7)]
    assert "no connection" in caplog.text


def test_tensorboard_has_the_values(tiny, loaded, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    callback = st.StemmaCallback(None, tiny / "a.jsonl", every=4)
    train(loaded, tmp_path / "out", [callback], report_to=["tensorboard"])
    values = {}
    for file in sorted((tmp_path / "out" / "runs" / "stemma").glob("events*")):
        reader = EventAccumulator(str(file)).Reload()
        for event in reader.Scalars("stemma/kl"):
            values[event.step] = event.value
    expected = {watched.step: watched.values["stemma/kl"] for watched in callback.history}
    assert values == pytest.approx(expected, rel=1e-6)


def test_mlflow_has_the_values(tiny, loaded, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    callback = st.StemmaCallback(None, tiny / "a.jsonl", every=4)
    train(loaded, tmp_path / "out", [callback], report_to=["mlflow"])
    client = mlflow.MlflowClient()
    (experiment,) = client.search_experiments()
    (run,) = client.search_runs([experiment.experiment_id])
    logged = {point.step: point.value for point in client.get_metric_history(run.info.run_id, "stemma/kl")}
    expected = {watched.step: watched.values["stemma/kl"] for watched in callback.history}
    assert logged == pytest.approx(expected)


def test_trackio_has_the_values(tiny, loaded, tmp_path, monkeypatch):
    pytest.importorskip("trackio", reason="trackio is not installed")
    import sqlite3

    # read from the environment when it is imported, which other tests may have done
    for name in [name for name in sys.modules if name.partition(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))

    callback = st.StemmaCallback(None, tiny / "a.jsonl", every=4)
    train(loaded, tmp_path / "out", [callback], report_to=["trackio"], project="watched")
    (database,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(database) as connection:
        rows = [json.loads(row[0]) for row in connection.execute("select metrics from metrics")]
    logged = {row["train/global_step"]: row["stemma/kl"] for row in rows if "stemma/kl" in row}
    expected = {watched.step: watched.values["stemma/kl"] for watched in callback.history}
    assert logged == pytest.approx(expected)
    assert np.isfinite(list(logged.values())).all()
