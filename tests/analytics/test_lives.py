"""The views after replan, rm, undelete and gc: sums done by hand on a store of five tensors."""

import pytest

from support.lives import HEADER, add_run, file_rows, pack_rows, tensor
from support.views import rows_of

A, B, C = (tensor(number, 1000) for number in range(3))
D = tensor(3, 500)
TEXT = tensor(4, 100, "OPAQUE")
BASE, TUNED, COPY = "lab/base", "lab/tuned", "mirror/copy"
VIEWS = (
    "now_total", "now_by_layer", "now_by_role", "savings_total", "savings_by_role", "savings_by_run",
    "growth", "packs", "unreferenced", "read_amplification",
)  # fmt: skip


def booked(repo, role, codec, n, bytes_in, after_dedup, stored):
    return {"repo": repo, "revision": "main", "dtype": "U8", "role": role, "codec": codec,
            "n_extents": n, "bytes_in": bytes_in, "bytes_after_dedup": after_dedup,
            "bytes_predicted": stored, "bytes_stored": stored}  # fmt: skip


def ingest(store):
    """base holds A and D; tuned holds B, a delta of A, and C, stored alone."""
    base, tuned = (
        file_rows(BASE, {"wte.weight": A, "d": D}),
        file_rows(TUNED, {"h.0.mlp.w1.weight": B, "h.0.attn.q_proj.weight": C}, header=TEXT),
    )
    first = pack_rows("p1", [(A, 600, None), (D, 400, None), (B, 100, A)])
    second = pack_rows("p2", [(C, 700, None), (TEXT, 50, None)])
    savings = [
        booked(BASE, "base", "zipnn", 1, 1000, 1000, 600),
        booked(BASE, "alone", "zipnn", 1, 500, 500, 400),
        booked(TUNED, "delta", "ulprow", 1, 1000, 1000, 100),
        booked(TUNED, "alone", "zipnn", 1, 1000, 1000, 700),
        booked(TUNED, "opaque", "zstd", 1, 100, 100, 50),
    ]
    return add_run(
        store, 1, "ingest", files=[base[0], tuned[0]], tensors=base[1] + tuned[1],
        blobs=first + second, savings=savings,
    )  # fmt: skip


def ingest_copy(store):
    """copy holds A and B and nothing else; no byte is stored for it."""
    file, tensors = file_rows(COPY, {"wte.weight": A, "other": B})
    return add_run(
        store, 2, "ingest", files=[file], tensors=tensors,
        savings=[booked(COPY, "duplicate", "none", 2, 2000, 0, 0)],
    )  # fmt: skip


def replan(store):
    """C becomes a delta of A: what was booked for it is taken back, and booked anew."""
    return add_run(
        store, 3, "replan", blobs=pack_rows("p3", [(C, 200, A)]),
        savings=[
            booked(TUNED, "alone", "zipnn", -1, -1000, -1000, -700),
            booked(TUNED, "delta", "ulprow", 1, 1000, 1000, 200),
        ],
    )  # fmt: skip


def remove(store, number, repo, removed=True):
    return add_run(
        store, number, "rm" if removed else "undelete",
        removals=[{"repo": repo, "revision": "main", "removed": removed}],
    )  # fmt: skip


def gc(store):
    """p1 and p2 are given up; of them only A, B and the text live on, in a pack of their own."""
    dropped = [{"pack": "p1", "nbytes": HEADER + 1100}, {"pack": "p2", "nbytes": HEADER + 750}]
    live = pack_rows("p4", [(A, 600, None), (B, 100, A), (TEXT, 50, None)])
    return add_run(store, 6, "gc", dropped_packs=dropped, blobs=live)


@pytest.fixture
def store(tmp_path):
    store = tmp_path / "s"
    ingest(store)
    ingest_copy(store)
    return store


class Seen:
    """What the views show of a store now: they are opened once, which takes a while."""

    def __init__(self, store):
        self.rows = rows_of(store, VIEWS)
        (self.now,) = self.rows["now_total"]
        self.packs = {row["pack"]: row for row in self.rows["packs"]}

    def by(self, view, key, value):
        return {row[key]: row[value] for row in self.rows[view]}

    def run(self, run):
        (row,) = [row for row in self.rows["savings_by_run"] if row["run"] == run]
        return row


def test_before(store):
    seen = Seen(store)
    now = seen.now
    assert (now["n_repositories"], now["n_files"], now["n_extents"]) == (3, 3, 7)
    assert (now["bytes_in"], now["bytes_after_dedup"], now["bytes_stored"]) == (5600, 3600, 1850)
    assert (now["saved_by_dedup"], now["saved_by_standalone"], now["saved_by_delta"]) == (
        2000, 400 + 100 + 300 + 50, 900,
    )  # fmt: skip
    assert now["bytes_packs"] == 2 * HEADER + 1850
    assert seen.by("now_by_layer", "layer", "bytes_in") == {
        "embedding": 2000, "mlp": 1000, "attention q": 1000, "other": 1500, "opaque": 100,
    }  # fmt: skip
    assert seen.rows["unreferenced"] == []


def test_a_replan_moves_bytes_from_alone_to_delta(store):
    assert Seen(store).by("now_by_role", "role", "bytes_stored")["alone"] == 1100
    run = replan(store)
    seen = Seen(store)
    now = seen.now
    assert (now["bytes_in"], now["bytes_after_dedup"], now["bytes_stored"]) == (5600, 3600, 1350)
    assert now["saved_by_delta"] == 900 + 800
    assert now["bytes_unreferenced"] == 700
    (dead,) = seen.rows["unreferenced"]
    assert (dead["pack"], dead["dead_bytes"], dead["live_bytes"], dead["n_live"]) == (
        "p2", 700, 50, 1,
    )  # fmt: skip
    for view in ("now_by_role", "savings_by_role"):
        assert seen.by(view, "role", "bytes_stored") == {
            "base": 600, "alone": 400, "delta": 300, "opaque": 50, "duplicate": 0,
        }  # fmt: skip
    last = seen.run(run)
    assert (last["bytes_in"], last["bytes_stored"], last["ratio"]) == (0, -500, None)
    assert seen.rows["growth"][-1]["total_stored"] == now["bytes_stored"]


def test_a_net_booking_gives_the_same_totals(store):
    """A replan may book only the difference; then the totals hold and the roles do not."""
    add_run(
        store, 3, "replan", blobs=pack_rows("p3", [(C, 200, A)]),
        savings=[booked(TUNED, "delta", "ulprow", 0, 0, 0, -500)],
    )  # fmt: skip
    seen = Seen(store)
    (booked_total,) = seen.rows["savings_total"]
    for name in ("bytes_in", "bytes_after_dedup", "bytes_stored"):
        assert booked_total[name] == seen.now[name]
    assert seen.rows["growth"][-1]["total_stored"] == 1350


def test_what_was_removed_is_dead_unless_others_need_it(store):
    replan(store)
    remove(store, 4, BASE)
    seen = Seen(store)
    now = seen.now
    assert (now["n_repositories"], now["n_files"]) == (2, 2)
    assert now["bytes_in"] == 4100
    assert now["bytes_stored"] == 100 + 200 + 50 + 600
    assert now["bytes_hidden_bases"] == 0  # copy still holds A
    assert {name: pack["dead_bytes"] for name, pack in seen.packs.items()} == {
        "p1": 400, "p2": 700, "p3": 0,
    }  # fmt: skip
    remove(store, 5, COPY)
    seen = Seen(store)
    assert (seen.now["bytes_stored"], seen.now["bytes_hidden_bases"]) == (350, 600)
    assert seen.packs["p1"]["dead_bytes"] == 400
    remove(store, 7, BASE, removed=False)
    assert Seen(store).now["bytes_unreferenced"] == 700


def test_gc(store):
    replan(store)
    remove(store, 4, BASE)
    before = Seen(store).now
    run = gc(store)
    seen = Seen(store)
    now = seen.now
    same = ("bytes_in", "bytes_after_dedup", "bytes_stored", "saved_by_dedup", "saved_by_delta")
    assert [now[name] for name in same] == [before[name] for name in same]
    assert before["bytes_packs"] == 3 * HEADER + 2050
    assert now["bytes_packs"] == 2 * HEADER + 950
    assert (before["bytes_unreferenced"], now["bytes_unreferenced"]) == (1100, 0)
    assert {name for name, pack in seen.packs.items() if pack["dropped_by"] == run} == {
        "p1", "p2",
    }  # fmt: skip
    last = seen.run(run)
    assert (last["bytes_packs"], last["bytes_dropped"]) == (HEADER + 750, 2 * HEADER + 1850)


def test_reading(store):
    found = {row["repo"]: row for row in Seen(store).rows["read_amplification"]}
    tuned = found[TUNED]
    assert (tuned["n_extents"], tuned["bytes_restored"]) == (3, 2100)
    assert (tuned["blobs_read"], tuned["bytes_read"]) == (4, 50 + 700 + 100 + 600)
    assert tuned["amplification"] == 1450 / 2100
    copy = found[COPY]
    assert (copy["blobs_read"], copy["bytes_read"]) == (3, 600 + 100 + 600)
    assert (copy["blobs_once"], copy["bytes_once"]) == (2, 700)


def test_bases(store):
    replan(store)
    found = rows_of(store, ["base_fanout", "fanout_histogram", "base_graph"])
    (base,) = found["base_fanout"]
    assert (base["base_id"], base["repo"], base["n_deltas"], base["n_repositories"]) == (
        A, BASE, 2, 2,
    )  # fmt: skip
    assert (base["bytes_in"], base["bytes_stored"], base["ratio"]) == (2000, 300, 0.15)
    assert [(row["n_deltas"], row["n_bases"]) for row in found["fanout_histogram"]] == [(2, 1)]
    edges = {(row["repo"], row["base_repo"]): row for row in found["base_graph"]}
    assert set(edges) == {(TUNED, BASE), (COPY, BASE)}
    assert (edges[TUNED, BASE]["n_deltas"], edges[TUNED, BASE]["bytes_stored"]) == (2, 300)
    assert edges[TUNED, BASE]["family"] == BASE


def test_growth_is_in_order_of_arrival(store):
    found = Seen(store).rows["growth"]
    assert [row["repo"] for row in found] == [BASE, TUNED, COPY]
    assert [row["total_in"] for row in found] == [1500, 3600, 5600]
    assert [row["total_after_dedup"] for row in found] == [1500, 3600, 3600]
    assert [row["total_stored"] for row in found] == [1000, 1850, 1850]
    assert found[-1]["ratio"] == 1850 / 5600
