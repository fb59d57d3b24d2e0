"""Small models with known answers for crossing: each continues a chain of tokens by a permutation.

A base learns one permutation; late layers learn another on the base's frozen earlier ones.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from stemmatics.lm.crossing.events import Event, Prompt
from stemmatics.lm.crossing.path import Path

VOCABULARY = 24
NUM_LAYERS = 4
CUT = 2
LENGTH = 8
_DRAW = np.random.default_rng(5)
FIRST, SECOND = (torch.from_numpy(_DRAW.permutation(VOCABULARY)) for _ in range(2))


def model(seed=0):
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        max_position_embeddings=32,
        initializer_range=0.1,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def chains(permutation, num_rows, generator):
    """Rows that follow the permutation from a random start."""
    rows_BL = torch.randint(VOCABULARY, (num_rows, 1), generator=generator)
    for _ in range(LENGTH - 1):
        rows_BL = torch.cat([rows_BL, permutation[rows_BL[:, -1:]]], dim=1)
    return rows_BL


def train(trained, permutation, *, steps, seed, layers, learning_rate=3e-3):
    """Next-token training of the parameters of some layers (all of the model where ``layers`` is None).

    The input is random, so that only the last token tells the next one.
    """
    generator = torch.Generator().manual_seed(seed)
    names = None if layers is None else tuple(f"model.layers.{layer}." for layer in layers)
    chosen = [
        weight for name, weight in trained.named_parameters() if names is None or name.startswith(names)
    ]
    optimizer = torch.optim.Adam(chosen, lr=learning_rate)
    for _ in range(steps):
        rows_BL = torch.randint(VOCABULARY, (32, LENGTH), generator=generator)
        logits_BLV = trained(rows_BL).logits
        loss = torch.nn.functional.cross_entropy(
            logits_BLV.reshape(-1, VOCABULARY), permutation[rows_BL].reshape(-1)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained.zero_grad()
    return trained


def portable_pair():
    """Base, and a descendant: new late layers on frozen early ones, then other early ones in their place."""
    base = train(model(), FIRST, steps=200, seed=0, layers=None)
    late = train(copy.deepcopy(base), SECOND, steps=200, seed=1, layers=range(CUT, NUM_LAYERS))
    # another fine-tune of the earlier layers, at the base's own task, so that the states differ
    early = train(copy.deepcopy(base), FIRST, steps=60, seed=2, layers=range(CUT), learning_rate=1e-3)
    descendant = copy.deepcopy(late)
    for layer in range(CUT):
        descendant.model.layers[layer].load_state_dict(early.model.layers[layer].state_dict())
    return base, descendant


def late_end(late, rows_BL, state_BLD):
    """Logits of a model whose layers from the cut on read another state; gradients flow."""

    def put(_module, args, kwargs):
        if args:
            return (state_BLD, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": state_BLD}

    handle = late.model.layers[CUT].register_forward_pre_hook(put, with_kwargs=True)
    logits_BLV = late(rows_BL).logits
    handle.remove()
    return logits_BLV


def dependent_pair(base, *, steps=120, portable=0.6):
    """Base and a descendant whose late layers read what only its own earlier ones write, and both halves fit.

    On the base's state the descendant's late layers give the second permutation a share ``portable``; on its
    own state they give it everything. The base's late layers do not see what the new earlier ones write.
    """
    descendant = copy.deepcopy(base)
    names = tuple(f"model.layers.{layer}." for layer in range(NUM_LAYERS))
    weights = [weight for name, weight in descendant.named_parameters() if name.startswith(names)]
    optimizer = torch.optim.Adam(weights, lr=2e-3)
    generator = torch.Generator().manual_seed(4)
    for _ in range(steps):
        rows_BL = torch.randint(VOCABULARY, (32, LENGTH), generator=generator)
        with torch.no_grad():
            known = base(rows_BL, output_hidden_states=True)
            second = torch.nn.functional.one_hot(SECOND[rows_BL], VOCABULARY).float()
            before = known.logits.softmax(-1)
        own = descendant(rows_BL, output_hidden_states=True)
        targets = (
            (late_end(base, rows_BL, own.hidden_states[CUT]), before),
            (
                late_end(descendant, rows_BL, known.hidden_states[CUT]),
                portable * second + (1 - portable) * before,
            ),
            (own.logits, second),
        )
        loss = sum(-(target * logits.log_softmax(-1)).sum(-1).mean() for logits, target in targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    base.zero_grad()
    descendant.zero_grad()
    return base, descendant


@torch.no_grad()
def paths(base, num_prompts=60, num_new=5, seed=9):
    """The base's greedy continuations of random prompts."""
    generator = torch.Generator().manual_seed(seed)
    rows_BL = torch.randint(VOCABULARY, (num_prompts, LENGTH), generator=generator)
    for _ in range(num_new):
        rows_BL = torch.cat([rows_BL, base(rows_BL).logits[:, -1:].argmax(-1)], dim=1)
    return [
        Path(Prompt(number, tuple(row[:LENGTH])), tuple(row[LENGTH:]))
        for number, row in enumerate(rows_BL.tolist())
    ]


@torch.no_grad()
def rotated(descendant, seed=0):
    """The same function, its residual stream rotated; norm gains go into the matrices behind them."""
    turned = copy.deepcopy(descendant)
    width = turned.config.hidden_size
    drawn = torch.from_numpy(np.random.default_rng(seed).standard_normal((width, width)))
    turn_DD = torch.linalg.qr(drawn).Q

    def reads(linear, gain_D):
        linear.weight.copy_((linear.weight.double() * gain_D.double()) @ turn_DD)

    def writes(linear):
        linear.weight.copy_(turn_DD.T @ linear.weight.double())

    inner = turned.model
    inner.embed_tokens.weight.copy_(inner.embed_tokens.weight.double() @ turn_DD)
    for layer in inner.layers:
        for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
            reads(linear, layer.input_layernorm.weight)
        for linear in (layer.mlp.gate_proj, layer.mlp.up_proj):
            reads(linear, layer.post_attention_layernorm.weight)
        writes(layer.self_attn.o_proj)
        writes(layer.mlp.down_proj)
        layer.input_layernorm.weight.fill_(1)
        layer.post_attention_layernorm.weight.fill_(1)
    reads(turned.lm_head, inner.norm.weight)
    inner.norm.weight.fill_(1)
    return turned


@torch.no_grad()
def events(base, descendant, num_prompts=80, seed=9):
    """First tokens at which the two disagree, a prompt of random tokens each."""
    generator = torch.Generator().manual_seed(seed)
    rows_BL = torch.randint(VOCABULARY, (num_prompts, LENGTH), generator=generator)
    base_ids, descendant_ids = (
        checkpoint(rows_BL).logits[:, -1].argmax(-1).tolist() for checkpoint in (base, descendant)
    )
    return [
        Event(number, number, "first", tuple(row), base_ids[number], descendant_ids[number], 0)
        for number, row in enumerate(rows_BL.tolist())
        if base_ids[number] != descendant_ids[number]
    ]
