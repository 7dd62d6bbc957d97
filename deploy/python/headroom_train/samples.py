"""Which samples a step used, from its line of steps.jsonl.

A run whose batch is at most 256 lists them. A run of larger batches has the seed, the
epoch and positions in the order of the epoch's samples, from which they are computed here
as the trainer does (worker/data/sampling/sampler.h).
"""

from __future__ import annotations

from typing import Iterator, List

from headroom_train.errors import REQUEST, HeadroomError
from headroom_train.table import Record

_MASK = 0xFFFFFFFF
_PERMUTATION = 2 << 24  # the purpose of these random numbers
_ROUNDS = 12


def _philox(words: List[int], key: List[int]) -> int:
    """The first of the 4 words of Philox4x32-10."""
    a, b, c, d = words
    first, second = key
    for _ in range(10):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = y >> 32 ^ b ^ first, y & _MASK, x >> 32 ^ d ^ second, x & _MASK
        first, second = first + 0x9E3779B9 & _MASK, second + 0xBB67AE85 & _MASK
    return a


def _order(seed: int, epoch: int, count: int, positions: range) -> Iterator[int]:
    """The samples at these positions of the epoch's permutation of 0 .. count - 1."""
    half = 1
    while 1 << 2 * half < count:
        half += 1
    mask = (1 << half) - 1
    key = [seed & _MASK, seed >> 32]
    for value in positions:
        while True:
            left, right = value >> half, value & mask
            for turn in range(_ROUNDS):
                word = _philox([right, epoch, turn, _PERMUTATION], key)
                left, right = right, left ^ word & mask
            value = left << half | right
            if value < count:
                yield value
                break


def samples_of(step: Record) -> List[int]:
    """The samples of the step's batch, in order, as indices into the data set.

    With --rect or --image-weights the order depends on the data set, and the samples of
    a step that does not list them are refused.
    """
    samples = step["samples"]
    if isinstance(samples, list):
        return samples
    if "order" in samples:
        raise HeadroomError(REQUEST, f"the samples of this step are not known: a run with {samples['order']} and "
                                     "--batch above 256 writes only their positions")
    positions = range(samples["begin"], samples["end"])
    return list(_order(samples["seed"], samples["epoch"], step["epoch_samples"], positions))
