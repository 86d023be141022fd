"""Places of tensors, whatever wraps the model."""

import pytest

from tstore.hub.names import name_tail


@pytest.mark.parametrize(
    ("name", "tail"),
    [
        ("encoder.layer.3.output.dense.weight", "3.output.dense.weight"),
        ("bert.encoder.layer.3.output.dense.weight", "3.output.dense.weight"),
        ("h.0.moe.7.weight", "0.moe.7.weight"),
        ("bert.embeddings.word_embeddings.weight", "word_embeddings.weight"),
        ("wte.weight", "wte.weight"),
        ("weight", "weight"),
        ("", ""),
    ],
)
def test_tail_of_a_name(name, tail):
    assert name_tail(name) == tail
