"""The tables that one measure alone fills, as `schema.SCHEMAS` holds them."""

from __future__ import annotations

import pyarrow as pa

_TEXT_LIST = pa.list_(pa.string())

REGISTRY_NAMES = (
    "base",
    "descendant",
    "family",
    "lab",
    "generation",
    "pipeline",
    "recipe_class",
    "recipe_hash",
    "corpus_sha256",
)
REGISTRY_NUMBERS = ("residual", "residual_lo", "residual_hi", "drop", "drop_lo", "drop_hi")

MEASURE_SCHEMAS: dict[str, pa.Schema] = {
    # one row an arm of a recovery: what its fine-tune read, and the parameters it was put on
    "arms": pa.schema(
        [
            ("recipe_hash", pa.string()),
            ("pool_sha256", pa.string()),
            ("run", pa.int64()),
            ("num_updates", pa.int64()),
            ("num_tokens", pa.int64()),
            ("num_bytes", pa.int64()),
            ("num_documents", pa.int64()),
            ("num_parameters", pa.int64()),
        ]
    ),
    # one row a pool and scored corpus: what they share
    "overlap": pa.schema(
        [
            ("num_pool_documents", pa.int64()),
            ("num_scored_documents", pa.int64()),
            ("num_shared_documents", pa.int64()),
            ("num_shared_ngrams", pa.int64()),
            ("num_pool_documents_sharing", pa.int64()),
        ]
    ),
    # one row a calibrated pair of a registry: nats/byte, under a recipe and on a text by their hashes
    "registry": pa.schema(
        [
            *((name, pa.string()) for name in REGISTRY_NAMES),
            *((name, pa.float64()) for name in REGISTRY_NUMBERS),
            ("n", pa.int64()),
        ]
    ),
    # one row a descendant of a blind family: where its base will stand, said before that is known
    "prediction": pa.schema(
        [
            ("checkpoint", pa.string()),
            ("value", pa.float64()),
            ("bar", pa.float64()),
            ("rule", pa.string()),
            ("num_pairs", pa.int64()),
            ("sha256", pa.string()),
        ]
    ),
    # one row an EVAL document, arm and reading of a correction: nats on the shared support
    "prior_sums": pa.schema(
        [
            ("index", pa.int64()),
            ("variant", pa.string()),
            ("arm", pa.string()),
            ("reading", pa.string()),
            ("nll_sum", pa.float64()),
            ("num_tokens", pa.int64()),
            ("excluded_nll_sum", pa.float64()),
            ("num_outside_support", pa.int64()),
        ]
    ),
    # one row an arm and reading: what was fitted, its sums on FIT, its certificate
    "prior_fits": pa.schema(
        [
            ("variant", pa.string()),
            ("arm", pa.string()),
            ("reading", pa.string()),
            ("inverse_temperature", pa.float64()),
            ("penalty", pa.float64()),
            ("num_free", pa.int64()),
            ("fit_nll_sum", pa.float64()),
            ("num_fit_tokens", pa.int64()),
            ("held_nll_sum", pa.float64()),
            ("num_held_tokens", pa.int64()),
            ("bound_nll_sum", pa.float64()),
            ("gap", pa.float64()),
            ("gradient_norm", pa.float64()),
            ("num_steps", pa.int64()),
            ("flags", _TEXT_LIST),
        ]
    ),
    # one row a draw of FIT weights and arm: nats of all EVAL documents under the redrawn fit
    "prior_draws": pa.schema(
        [
            ("arm", pa.string()),
            ("reading", pa.string()),
            ("kind", pa.string()),
            ("draw", pa.int64()),
            ("nll_sum", pa.float64()),
        ]
    ),
    # one row a model: what it was fitted on, or why it was not
    "prior_model": pa.schema(
        [
            ("refusal", pa.string()),
            ("note", pa.string()),
            ("token_ids_sha256", pa.string()),
            ("prefix_id", pa.int64()),
            ("num_ids", pa.int64()),
            ("num_support", pa.int64()),
            ("num_columns", pa.int64()),
            ("stored", pa.string()),
            ("num_fit_documents", pa.int64()),
            ("num_fit_tokens", pa.int64()),
            ("mean_state_energy", pa.float64()),
            ("state_energy", pa.float64()),
            ("dtype", pa.string()),
        ]
    ),
    # one row a damaged base: the noise on its head, and the loss increase that it was matched to
    "prior_damage": pa.schema(
        [
            ("variant", pa.string()),
            ("kind", pa.string()),
            ("seed", pa.int64()),
            ("sigma", pa.float64()),
            ("num_evaluations", pa.int64()),
            ("failure", pa.string()),
        ]
    ),
    # one row a prompt and support: where a pair parts, or why there is no event; no ids
    "events": pa.schema(
        [
            ("event", pa.int64()),
            ("index", pa.int64()),
            ("item_id", pa.string()),
            ("category", pa.string()),
            ("support", pa.string()),
            ("outcome", pa.string()),
            ("prefix_length", pa.int64()),
            ("num_new", pa.int64()),
        ]
    ),
    # one row an event, boundary, readout and arm: margins of the four cells in logits, earlier state
    # first; whether the top token is the base's, the descendant's or another; whether it changed
    "cells": pa.schema(
        [
            ("event", pa.int64()),
            ("index", pa.int64()),
            ("support", pa.string()),
            ("boundary", pa.int64()),
            ("readout", pa.string()),
            ("arm", pa.string()),
            ("base_base", pa.float64()),
            ("base_desc", pa.float64()),
            ("desc_base", pa.float64()),
            ("desc_desc", pa.float64()),
            ("top_base_base", pa.string()),
            ("top_base_desc", pa.string()),
            ("top_desc_base", pa.string()),
            ("top_desc_desc", pa.string()),
            ("changed_after_base", pa.int64()),
            ("changed_after_desc", pa.int64()),
            ("distance", pa.float64()),
        ]
    ),
    # one row a crossing: its stack, its identity check, what it was computed with, or why there is none
    "crossing": pa.schema(
        [
            ("num_layers", pa.int64()),
            ("num_events", pa.int64()),
            ("main_boundary", pa.int64()),
            ("identity_error", pa.float64()),
            ("num_layer_evaluations", pa.int64()),
            ("dtype", pa.string()),
            ("device", pa.string()),
            ("attention", pa.string()),
            ("refusal", pa.string()),
        ]
    ),
    # one row an event with a rule to be judged by: is the reply good after each of the two tokens
    "forced": pa.schema(
        [
            ("event", pa.int64()),
            ("index", pa.int64()),
            ("category", pa.string()),
            ("valid_after_base", pa.int64()),
            ("valid_after_descendant", pa.int64()),
        ]
    ),
    # one row a pair: the noise on every matrix that costs the base what the descendant lost, in nats
    "noise_scale": pa.schema(
        [
            ("scale", pa.float64()),
            ("base_nll_sum", pa.float64()),
            ("descendant_nll_sum", pa.float64()),
            ("noised_nll_sum", pa.float64()),
            ("num_bytes", pa.int64()),
            ("num_evaluations", pa.int64()),
            ("failure", pa.string()),
        ]
    ),
}
