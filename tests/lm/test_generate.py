import peft
import pytest
import torch
from architectures import ARCHITECTURES
from oracles import tiny_llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedTokenizerFast

from stemmatics.core.errors import UserError
from stemmatics.lm.generation.generate import Reply, encode_prompt, generate
from stemmatics.lm.tokens.tokenizer import TextTokenizer

BOS, EOS, TURN = 1, 2, 3
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<turn>{{ message.role }}: {{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant: {% endif %}"
)


def byte_tokenizer(*, bos=True, template=TEMPLATE):
    """A token a byte; BOS in front if asked for, as a tokenizer's own template does it."""
    specials = ["<pad>", "<bos>", "<eos>", "<turn>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*specials, *alphabet])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(specials)
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", BOS)]
        )
    return TextTokenizer(
        PreTrainedTokenizerFast(
            tokenizer_object=backend,
            bos_token="<bos>",
            eos_token="<eos>",
            pad_token="<pad>",
            additional_special_tokens=["<turn>"],
            chat_template=template,
        )
    )


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


def greedy_alone(model, ids, max_new_tokens, stop_ids):
    """One prompt, no padding, no cache: the definition."""
    said = []
    with torch.no_grad():
        for _ in range(max_new_tokens):
            logits = model(torch.tensor([[*ids, *said]]), use_cache=False).logits[0, -1]
            found = int(logits.argmax())
            if found in stop_ids:
                return tuple(said), True
            said.append(found)
    return tuple(said), False


def some_prompts(num_prompts, longest, num_ids=64):
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, longest + 1, (num_prompts,), generator=generator).tolist()
    return [torch.randint(4, num_ids, (length,), generator=generator).tolist() for length in lengths]


def run(model, tokenizer, prompts, **settings):
    settings = {"max_new_tokens": 8, "stop_ids": [EOS]} | settings
    return list(generate(model, tokenizer, prompts, **settings))


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda architecture: architecture.name)
def test_batches_equal_one_prompt_at_a_time(architecture, tokenizer):
    model = architecture.build()
    prompts = some_prompts(6, 14)
    stop_ids = list(range(2, 24))
    replies = run(model, tokenizer, prompts, max_new_tokens=4, stop_ids=stop_ids)
    expected = [greedy_alone(model, ids, 4, stop_ids) for ids in prompts]
    assert [(reply.ids, reply.finished) for reply in replies] == expected


def test_an_adapted_model_replies_with_its_adapter_and_gets_its_settings_back(tokenizer):
    model = tiny_llama(num_ids=300)
    prompts = some_prompts(5, 10, num_ids=300)
    plain = run(model, tokenizer, prompts)
    own = model.generation_config
    adapted = peft.get_peft_model(
        model,
        peft.LoraConfig(target_modules="all-linear", init_lora_weights=False),
        autocast_adapter_dtype=False,
    )
    replies = run(adapted, tokenizer, prompts)
    expected = [greedy_alone(adapted.eval(), ids, 8, [EOS]) for ids in prompts]
    assert [(reply.ids, reply.finished) for reply in replies] == expected
    assert replies != plain
    assert adapted.get_base_model().generation_config is own
    assert adapted.generation_config is own


def test_a_model_that_sees_padding_gets_prompts_of_equal_length(tokenizer):
    model = tiny_llama(num_ids=300)
    own_forward = model.forward
    shapes = []

    def forward(input_ids, attention_mask=None, position_ids=None, **given):
        shapes.append(tuple(input_ids.shape))
        return own_forward(input_ids, **given)

    model.forward = forward
    prompts = some_prompts(30, 6, num_ids=300)
    expected = [greedy_alone(model, ids, 8, [EOS]) for ids in prompts]
    shapes.clear()
    replies = run(model, tokenizer, prompts)
    assert [(reply.ids, reply.finished) for reply in replies] == expected
    assert max(num_rows for num_rows, _ in shapes) > 1


def test_order_and_budget_do_not_matter(tokenizer):
    model = tiny_llama(num_ids=300)
    prompts = some_prompts(40, 20, num_ids=300)
    whole = run(model, tokenizer, prompts, token_budget=100_000)
    assert [reply.index for reply in whole] == list(range(40))
    assert whole == run(model, tokenizer, prompts, token_budget=1)
    assert whole == run(model, tokenizer, prompts, token_budget=97)
    backwards = run(model, tokenizer, prompts[::-1])
    assert [reply.ids for reply in backwards][::-1] == [reply.ids for reply in whole]


def test_longest_prompts_come_first_and_batches_keep_the_budget(tokenizer):
    model = tiny_llama(num_ids=300)
    shapes = []
    own_forward = model.forward

    def forward(*args, **given):
        shapes.append(tuple(given["input_ids"].shape))
        return own_forward(*args, **given)

    model.forward = forward
    prompts = [ids for ids in some_prompts(40, 20, num_ids=300) if len(ids) > 1]
    run(model, tokenizer, prompts, token_budget=100, stop_ids=[])
    shapes = [shape for shape in shapes[2:] if shape[1] > 1]
    # Without the cache of keys and values every step would feed the whole batch again.
    assert sum(num_rows for num_rows, _ in shapes) == len(prompts)
    lengths = [length for _, length in shapes]
    assert lengths == sorted(lengths, reverse=True)
    assert all(num_rows * (length + 8) <= 100 for num_rows, length in shapes)
    assert max(num_rows for num_rows, _ in shapes) > 3


def test_settings_of_the_checkpoint_are_not_used_and_are_put_back(tokenizer):
    model = tiny_llama(num_ids=300)
    prompts = some_prompts(5, 10, num_ids=300)
    expected = [greedy_alone(model, ids, 8, [EOS])[0] for ids in prompts]
    own = GenerationConfig(
        do_sample=True,
        temperature=9.0,
        repetition_penalty=5.0,
        min_new_tokens=3,
        suppress_tokens=[7],
        max_length=3,
    )
    model.generation_config = own
    model.train()
    replies = generate(model, tokenizer, prompts, max_new_tokens=8, stop_ids=[EOS])
    assert next(replies).ids == expected[0]
    # Between two replies, too, the model is the caller's.
    assert model.generation_config is own
    assert model.training
    assert [reply.ids for reply in replies] == expected[1:]


def test_any_stop_id_ends_a_reply(tokenizer):
    model = tiny_llama(num_ids=300)
    (ids,) = some_prompts(1, 10, num_ids=300)
    (free,) = run(model, tokenizer, [ids], stop_ids=[])
    assert (len(free.ids), free.finished) == (8, False)
    later = free.ids[3]
    cut = free.ids[: free.ids.index(later)]
    (ended,) = run(model, tokenizer, [ids], stop_ids=[later, 299])
    assert (ended.ids, ended.finished) == (cut, True)


def test_a_reply_that_ends_at_once_is_empty(tokenizer):
    model = tiny_llama(num_ids=300)
    (ids,) = some_prompts(1, 10, num_ids=300)
    (first,) = run(model, tokenizer, [ids], max_new_tokens=1)
    assert run(model, tokenizer, [ids], stop_ids=[first.ids[0]]) == [Reply(0, (), "", finished=True)]


def test_out_of_memory_halves_the_batch_and_loses_nothing(tokenizer):
    model = tiny_llama(num_ids=300)
    prompts = some_prompts(9, 10, num_ids=300)
    expected = run(model, tokenizer, prompts)
    own_generate = model.generate

    def small_generate(input_BL, **given):
        if len(input_BL) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return own_generate(input_BL, **given)

    model.generate = small_generate
    events = []
    assert run(model, tokenizer, prompts, on_event=events.append) == expected
    assert {event["kind"] for event in events} == {"out_of_memory", "progress"}
    assert events[-1] == {"kind": "progress", "done": 9, "total": 9}


def test_a_prompt_too_large_alone_and_other_failures_are_reported(tokenizer):
    model = tiny_llama(num_ids=300)
    own_generate = model.generate

    def failing(error):
        def fail(input_BL, **given):
            if "output_logits" in given:
                return own_generate(input_BL, **given)
            raise error

        return fail

    model.generate = failing(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB"))
    with pytest.raises(UserError, match="prompt 0 does not fit in memory"):
        run(model, tokenizer, [[5, 6]])
    model.generate = failing(RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run(model, tokenizer, [[5, 6]])


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[5], []], "prompt 1 is empty"),
        ([[5], [5, 300]], "prompt 1 has the id 300"),
        ([[-1]], "prompt 0 has the id -1"),
        ([[5] * 57], "prompt 0 has 57 tokens, which leaves no room for 8 more"),
    ],
)
def test_refuses(tokenizer, prompts, message):
    model = tiny_llama(num_ids=300)
    with pytest.raises(UserError, match=message):
        run(model, tokenizer, prompts, context_length=64)


def test_a_full_context_is_used(tokenizer):
    model = tiny_llama(num_ids=300)
    (reply,) = run(model, tokenizer, [[5] * 56], context_length=64, stop_ids=[])
    assert len(reply.ids) == 8


def test_no_prompts(tokenizer):
    assert run(tiny_llama(num_ids=300), tokenizer, []) == []


def test_text_gets_the_prefix_of_the_tokenizer(tokenizer):
    plain = byte_tokenizer(bos=False)
    a, b = plain.encode("ab").ids.tolist()
    assert encode_prompt(tokenizer, "ab") == [BOS, a, b]
    assert encode_prompt(plain, "ab") == [a, b]
    assert encode_prompt(tokenizer, "") == [BOS]
    # A control token in plain text is plain text.
    assert len(encode_prompt(plain, "<eos>")) == 5
    with pytest.raises(UserError, match="a prompt is empty"):
        encode_prompt(plain, "")


def test_messages_are_rendered_with_one_bos_and_the_header_of_the_reply(tokenizer):
    ids = encode_prompt(tokenizer, [{"role": "user", "content": "hi"}])
    assert ids.count(BOS) == 1
    assert ids[:2] == [BOS, TURN]
    assert tokenizer.hf.decode(ids) == "<bos><turn>user: hi<turn>assistant: "


def test_messages_that_cannot_be_rendered_are_told(tokenizer):
    with pytest.raises(UserError, match="no chat template"):
        encode_prompt(byte_tokenizer(template=None), [{"role": "user", "content": "hi"}])
    strict = byte_tokenizer(template="{{ raise_exception('only the user may speak') }}")
    with pytest.raises(UserError, match="only the user may speak"):
        encode_prompt(strict, [{"role": "user", "content": "hi"}])


def test_text_of_a_reply_is_without_special_tokens(tokenizer):
    model = tiny_llama(num_ids=300)
    spoken = [*tokenizer.encode("so").ids.tolist(), TURN, *tokenizer.encode(" it !").ids.tolist(), EOS]

    def speak(input_BL, **given):
        if "output_logits" in given:
            return own_generate(input_BL, **given)
        return torch.cat([input_BL, torch.tensor([spoken])], dim=1)

    own_generate = model.generate
    model.generate = speak
    (reply,) = run(model, tokenizer, [[5]], max_new_tokens=20)
    assert reply.text == "so it !"
    assert reply.finished
