"""What fuzzing has found once stays read without any error but those of the tree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain

import pytest

from tests.fuzz.seeds import CORPUS, seeds
from tests.fuzz.targets import TARGETS

MUTATIONS = 400


def corpus(target: str) -> Iterator[bytes]:
    for path in sorted((CORPUS / target).iterdir()):
        yield path.read_bytes()


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_there(target: str) -> None:
    assert any(corpus(target))
    assert any(seeds(target))


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_breaks_nothing(target: str) -> None:
    for data in chain(corpus(target), seeds(target)):
        TARGETS[target](data)


@pytest.mark.parametrize("target", TARGETS)
def test_a_seeded_slice_of_mutations_breaks_nothing(target: str) -> None:
    draw = random.Random(target)
    inputs = [*corpus(target), *seeds(target)]
    for _ in range(MUTATIONS):
        TARGETS[target](mutated(draw, inputs))


def mutated(draw: random.Random, inputs: list[bytes]) -> bytes:
    """Some input with bytes changed, put in, taken out, or spliced with another one."""
    data = bytearray(draw.choice(inputs))
    for _ in range(draw.randint(1, 4)):
        at, end = sorted(draw.choices(range(len(data) + 1), k=2))
        match draw.randrange(4):
            case 0 if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
            case 1:
                data[at:at] = draw.randbytes(draw.randint(1, 8))
            case 2:
                del data[at : min(end, at + 16)]
            case _:
                other = draw.choice(inputs)
                data[at:end] = other[at:end]
    return bytes(data)
