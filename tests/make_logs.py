"""Make the evaluation logs in ``tests/golden/logs`` with lm-evaluation-harness itself.

``python -m tests.make_logs``: two tiny random models on local tasks: multiple choice in a group of two, a
generative task with two filters, and a perplexity task. Needs the extra ``eval``.
"""

import json
import shutil
import tempfile
from pathlib import Path

OUT = Path(__file__).parent / "golden" / "logs"
WORDS = ["cat", "dog", "mat", "sun", "sea", "owl"]
CHOICE = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1.0}}
"""
GENERATE = """
task: words_generate
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[answer]}}}}"
generation_kwargs: {{until: ["."], max_gen_toks: 6, do_sample: false}}
filter_list:
  - {{name: strict, filter: [{{function: take_first}}]}}
  - {{name: letters, filter: [{{function: regex, regex_pattern: "([a-z]+)"}}, {{function: take_first}}]}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
metadata: {{version: 2.0}}
"""
PERPLEXITY = """
task: words_perplexity
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{question}}}}"
metric_list:
  - {{metric: word_perplexity}}
  - {{metric: bits_per_byte}}
metadata: {{version: 1.0}}
"""


def questions():
    rows = []
    for number in range(24):
        choices = [WORDS[(number + step) % len(WORDS)] for step in range(3)]
        rows.append(
            {
                "question": f"the {WORDS[number % 6]} number {number} is a",
                "choices": choices,
                "answer": number % 3,
            }
        )
    return rows


def models(folder):
    import torch
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers import models as bpe
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    backend = Tokenizer(bpe.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([row["question"] for row in questions()], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", bos_token="<eos>")
    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=128, initializer_range=0.3,
    )  # fmt: skip
    for seed, name in enumerate(("base", "tuned")):
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return [folder / "base", folder / "tuned"]


def main():
    import lm_eval
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    shutil.rmtree(OUT, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = folder / "questions.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in questions()))
        tasks = folder / "tasks"
        tasks.mkdir()
        for name in ("words_a", "words_b"):
            (tasks / f"{name}.yaml").write_text(CHOICE.format(name=name, data=data))
        (tasks / "generate.yaml").write_text(GENERATE.format(data=data))
        (tasks / "perplexity.yaml").write_text(PERPLEXITY.format(data=data))
        group = "group: words\ntask: [words_a, words_b]\naggregate_metric_list: [{metric: acc}]\n"
        (tasks / "group.yaml").write_text(group)
        manager = TaskManager(include_path=str(tasks), include_defaults=False)
        for model in models(folder):
            tracker = EvaluationTracker(output_path=str(folder / "out"))
            results = lm_eval.simple_evaluate(
                "hf",
                model_args={"pretrained": str(model), "device": "cpu"},
                tasks=["words", "words_generate", "words_perplexity"],
                task_manager=manager,
                log_samples=True,
                bootstrap_iters=0,
                batch_size=8,
                evaluation_tracker=tracker,
            )
            samples = results.pop("samples")
            tracker.save_results_aggregated(results=results, samples=samples)
            for task, rows in samples.items():
                tracker.save_results_samples(task_name=task, samples=rows)
            written = next(path for path in (folder / "out").iterdir() if path.name.endswith(model.name))
            target = OUT / model.name
            shutil.copytree(written, target)
            for file in target.glob("results_*.json"):
                content = json.loads(file.read_text())
                # paths and the machine are not part of what is read
                kept = {
                    name: content[name] for name in ("results", "versions", "higher_is_better", "n-samples")
                }
                file.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
