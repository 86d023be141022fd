"""What is left of a tensor's name when wrappers and prefixes differ."""

from __future__ import annotations


def name_tail(name: str) -> str:
    """The part of a tensor's name that tells its place in the model.

    From the first number on, or else the last two words: ``bert.encoder.layer.3.output.weight``
    and ``encoder.layer.3.output.weight`` have the same place, whatever wraps the model.
    """
    words = name.split(".")
    first = next((i for i, word in enumerate(words) if word.isdecimal()), len(words) - 2)
    return ".".join(words[max(first, 0) :])
