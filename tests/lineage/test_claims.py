"""What model cards say of their base."""

import pytest

from tstore.lineage.claims import base_models


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("---\nbase_model: org/a\n---\n# x", ["org/a"]),
        ("---\nlicense: mit\nbase_model: 'org/a'  # the bf16 one\ntags:\n- b\n---", ["org/a"]),
        ('---\nbase_model:\n- org/a\n- "org/b"\ntags:\n- c\n---', ["org/a", "org/b"]),
        ("---\nbase_model:\n  - org/a\n---", ["org/a"]),
        ("---\nbase_model: [org/a, org/b]\n---", ["org/a", "org/b"]),
        ("---\nbase_model_relation: merge\n---", []),
        ("---\nmodel:\n  base_model: org/a\n---", []),
        ("---\ntags:\n- a\n---\nbase_model: org/a", []),
        ("# no front matter\nbase_model: org/a", []),
        ("---\nbase_model:\n---", []),
        ("", []),
    ],
)
def test_front_matter(text, names):
    assert base_models(text) == names
