"""What `tstore similar` and `tstore lineage` print."""

import json

from typer.testing import CliRunner

from tstore.cli.main import app


def run(store, *arguments):
    command, *rest = arguments
    result = CliRunner().invoke(app, [command, store.objects.uri, *rest])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_lineage_says_who_a_model_was_made_from_and_what_its_card_says(example_store):
    lines = run(example_store, "lineage", "acme/pygpt-docs-stage2").splitlines()
    assert lines[0] == "acme/pygpt-docs-stage2"
    assert lines[1].startswith("  made from acme/pygpt-docs: 6.6")
    assert lines[2].startswith("  also near mirror/pygpt-bf16-reupload = tinylab/pygpt-bf16: ")
    assert lines[-2:] == [
        "  README.md says tinylab/pygpt",
        "  card and content: the card names an ancestor, not the parent",
    ]


def test_lineage_of_a_whole_store_tells_copies_roots_and_strangers(example_store):
    models = _by_model(run(example_store, "lineage"))
    assert len(models) == 10
    assert "root of its family" in models["tinylab/pygpt"]
    assert "same content as mirror/pygpt-bf16-reupload" in models["tinylab/pygpt-bf16"]
    assert "made from tinylab/pygpt (another dtype)" in models["tinylab/pygpt-bf16"]
    assert "no evidence" in models["other/rsgpt-bf16"]


def _by_model(text):
    found = {}
    for line in text.splitlines():
        if not line.startswith(" "):
            found[line] = ""
            name = line
        else:
            found[name] += line + "\n"
    return found


def test_similar_shows_the_nearest_first_and_each_tensor_on_demand(example_store):
    lines = run(example_store, "similar", "acme/pygpt-tests-frozen").splitlines()
    assert lines[0] == "acme/pygpt-tests-frozen"
    assert [line.split()[0] for line in lines[2:]][-1] == "other/rsgpt-bf16"
    assert len(lines) == 9
    more = run(example_store, "similar", "acme/pygpt-tests-frozen", "--tensors")
    assert any(line.startswith("h.0.attn.c_attn.weight") for line in more.splitlines())


def test_json_has_the_same(example_store):
    found = json.loads(run(example_store, "lineage", "acme/pygpt-docs", "--json"))["lineage"]
    assert [origin["model"] for origin in found] == ["acme/pygpt-docs"]
    assert found[0]["parents"][0]["inferred"]
    assert found[0]["claims"] == {"README.md": ["tinylab/pygpt-bf16"]}
    near = json.loads(run(example_store, "similar", "acme/pygpt-docs", "--json"))
    assert list(near) == ["similar"]
    assert near["similar"]["acme/pygpt-docs"][0]["distance"] < 0.06
