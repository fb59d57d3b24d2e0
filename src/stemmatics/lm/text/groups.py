"""Groups of near-duplicates, and splits that never divide a group.

MinHash (Broder 1997) over 5-word shingles of normalised text, banded for candidates, each
candidate pair verified by its estimated Jaccard similarity. The groups are the connected
components of the verified pairs, so they do not depend on the order of the documents.

Axes: N distinct documents, P permutations.
"""

from __future__ import annotations

import unicodedata
import zlib

import numpy as np
from datasketch import MinHash
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from stemmatics.core.keys import seed_from

SHINGLE_WORDS = 5
JACCARD = 0.8
NUM_PERMUTATIONS = 128
# 21 bands of 6: a pair at Jaccard 0.8 becomes a candidate with probability 0.998, one at 0.5 with 0.28.
NUM_BANDS = 21
BAND_ROWS = 6
_SHINGLES_AT_ONCE = 8192  # bounds the shingles × permutations matrix inside datasketch to 4 MB


def normalise(text: str) -> str:
    """NFKC, case-folded, with runs of white space replaced by one space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def shingles(text: str) -> list[bytes]:
    """The distinct 5-word shingles of the normalised text, sorted; a shorter text is one shingle."""
    words = normalise(text).encode().split(b" ")
    last = max(len(words) - SHINGLE_WORDS, 0)
    return sorted({b" ".join(words[start : start + SHINGLE_WORDS]) for start in range(last + 1)})


class GroupIndex:
    """Collects documents one by one, then groups near-duplicates.

    Stores the id and 512 bytes of each distinct document, never its text.
    """

    def __init__(self) -> None:
        self._empty = MinHash(num_perm=NUM_PERMUTATIONS, seed=1, scheme="affine32", hashfunc=zlib.crc32)
        self._signatures: dict[str, np.ndarray] = {}

    def add(self, doc_id: str, text: str) -> None:
        """Add a document; another one with the same id has no effect."""
        if doc_id in self._signatures:
            return
        sketch = self._empty.copy()
        parts = shingles(text)
        for start in range(0, len(parts), _SHINGLES_AT_ONCE):
            sketch.update_batch(parts[start : start + _SHINGLES_AT_ONCE])
        self._signatures[doc_id] = sketch.hashvalues

    def groups(self) -> dict[str, str]:
        """Group of every doc_id: the smallest doc_id of its connected component."""
        ids = sorted(self._signatures)
        if not ids:
            return {}
        signatures_NP = np.stack([self._signatures[doc_id] for doc_id in ids])
        labels_N = _components(signatures_NP)
        first_of: dict[int, str] = {}
        for doc_id, label in zip(ids, labels_N.tolist(), strict=True):
            first_of.setdefault(label, doc_id)  # ids are sorted, so the first is the smallest
        return {doc_id: first_of[label] for doc_id, label in zip(ids, labels_N.tolist(), strict=True)}


def _components(signatures_NP: np.ndarray) -> np.ndarray:
    """Component label [N] under all candidate pairs whose estimated Jaccard is at least 0.8."""
    num_documents = len(signatures_NP)
    labels_N = np.arange(num_documents)
    edges: list[np.ndarray] = []
    for band in range(NUM_BANDS):
        rows = np.ascontiguousarray(signatures_NP[:, band * BAND_ROWS : (band + 1) * BAND_ROWS])
        keys_N = rows.view(f"V{rows.itemsize * BAND_ROWS}").ravel()
        bucket_N = np.unique(keys_N, return_inverse=True)[1]
        order = np.argsort(bucket_N, kind="stable")
        cuts = np.flatnonzero(np.diff(bucket_N[order])) + 1
        matches = [
            _verified(signatures_NP, members, labels_N[members])
            for members in np.split(order, cuts)
            if len(members) > 1
        ]
        edges.extend(pairs for pairs in matches if len(pairs))
        if edges:
            left, right = np.concatenate(edges).T
            graph = coo_array((np.ones(len(left)), (left, right)), shape=(num_documents, num_documents))
            labels_N = connected_components(graph, directed=False)[1]
    return labels_N


def _verified(signatures_NP: np.ndarray, members: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Pairs [num_pairs, 2] of one bucket that are similar enough and not yet connected."""
    labels = labels.copy()
    pairs: list[np.ndarray] = []
    for position, member in enumerate(members[:-1]):
        apart = np.flatnonzero(labels[position + 1 :] != labels[position]) + position + 1
        if not len(apart):
            continue
        same_share = (signatures_NP[members[apart]] == signatures_NP[member]).mean(axis=1)
        joined = apart[same_share >= JACCARD]
        pairs.append(np.stack([np.full(len(joined), member), members[joined]], axis=1))
        labels[np.isin(labels, labels[joined])] = labels[position]
    return np.concatenate(pairs) if pairs else np.empty((0, 2), dtype=np.int64)


def assign_split(group: str, seed: int, eval_share: float) -> str:
    """``"EVAL"`` for about ``eval_share`` of all groups, else ``"FIT"``, by a hash of group and seed."""
    return "EVAL" if seed_from(seed, "split", group) / 2**63 < eval_share else "FIT"
