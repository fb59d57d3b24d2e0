"""Texts whose targets follow shifted, sharpened logits, whole and reduced."""

import numpy as np

from stemmatics.math.prior import Rest, Statistics, reduce_logits, top_columns

V = 30


def make(seed=0, num=600, scale=1.5, vocabulary=V, unseen=0):
    """Targets follow shifted, sharpened logits; the last ``unseen`` ids are never targets."""
    rng = np.random.default_rng(seed)
    logits_NV = rng.normal(0, 1.5, (num, vocabulary))
    true_NV = scale * logits_NV + rng.normal(0, 0.7, vocabulary)
    true_NV[:, vocabulary - unseen :] = -np.inf
    target_N = np.argmax(true_NV + rng.gumbel(size=true_NV.shape), axis=1)
    return Statistics.dense(logits_NV, target_N, np.arange(num) // 20)


def make_reduced(num_columns, **settings):
    full = make(**settings)
    ids_K = top_columns(full.target_column_N, num_columns, V)
    logits_NK, column_N, target_logit_N, log_z_NJ = reduce_logits(full.logits_NK, full.target_column_N, ids_K)
    num_documents = full.num_documents
    return Statistics(
        logits_NK, column_N, full.document_N, ids_K, num_documents, target_logit_N, Rest(log_z_NJ)
    )
