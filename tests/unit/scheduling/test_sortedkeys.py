"""The sorted structure under queues and timers, against a plain sorted list."""

from __future__ import annotations

import pytest

from shoal.base.rng import Rng
from shoal.scheduling.sortedkeys import SortedKeys


@pytest.mark.parametrize("seed", [1, 2])
def test_it_agrees_with_a_sorted_list_over_thousands_of_keys(seed):
    rng = Rng(seed)
    keys, plain = SortedKeys(), []
    for step in range(4_000):
        if plain and rng.below(3) == 0:
            gone = plain.pop(rng.below(len(plain)))
            keys.remove(gone)
        else:
            key = (rng.below(50), step)
            keys.add(key)
            plain.append(key)
            plain.sort()
        if step % 97 == 0:
            probe = (rng.below(50), rng.below(4_000))
            assert list(keys) == plain
            assert len(keys) == len(plain)
            assert keys.first() == (plain[0] if plain else None)
            assert keys.rank(probe) == sum(key < probe for key in plain)
            assert keys.below(probe) == [key for key in plain if key < probe]
            assert keys.after(probe) == next((key for key in plain if key > probe), None)
            assert all(keys.after(key) == after for key, after in zip(plain, [*plain[1:], None], strict=True))


def test_built_at_once_it_equals_one_built_key_by_key():
    built = SortedKeys((n,) for n in range(2_000))
    grown = SortedKeys()
    for n in reversed(range(2_000)):
        grown.add((n,))
    assert list(built) == list(grown)


def test_removing_what_is_not_in_it_is_an_error():
    keys = SortedKeys([(1,), (3,)])
    for absent in ((0,), (2,), (4,)):
        with pytest.raises(KeyError):
            keys.remove(absent)
