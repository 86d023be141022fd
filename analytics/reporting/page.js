"use strict";
/* Fills the page from its data, and redraws it when the theme, a choice or a price changes. */

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/* ---- headline ---------------------------------------------------------------------------- */

function fillHeadline() {
  const { total, counts, reading, space } = data;
  const disk = total.bytes_packs + total.bytes_catalog;
  byId("saved").textContent = percent(1 - (total.ratio_on_disk ?? 1));
  byId("lead").textContent = `${size(total.bytes_current)} in ${count(total.n_files)} files of ${count(total.n_repositories)} `
    + `repositories are stored in ${size(disk)}, a ratio of ${fixed(total.ratio_on_disk)}. Every file comes back byte for byte.`;
  for (const [name, key, tone] of PARTS) {
    const share = Math.max(total[key], 0) / Math.max(total.bytes_in, 1);
    byId("bar").append(element("span", undefined, { style: `flex:${share};background:var(--${tone})`, title: name }));
    const item = element("li");
    item.append(element("i", undefined, { style: `background:var(--${tone})` }), name + " ", element("b", `${size(total[key])}, ${percent(share)}`));
    byId("bar-keys").append(item);
  }
  byId("bar").setAttribute("aria-label", byId("bar-keys").textContent);
  const tiles = [
    ["repositories", count(total.n_repositories)], ["families", count(counts.n_families)],
    ["distinct tensors", count(counts.n_tensors)], ["stored as deltas", count(counts.n_deltas)],
    ["bases in use", count(counts.n_bases)],
    ["read per byte restored", reading.bytes_restored ? fixed(reading.bytes_once / reading.bytes_restored, 2) : "–"],
    ["blobs per tensor read", fixed(reading.blobs_per_extent, 2) || "–"],
    ["packs", count(space.n_packs)],
  ];
  for (const [name, value] of tiles) {
    const tile = element("div");
    tile.append(element("div", value, { class: "value" }), element("div", name, { class: "name" }));
    byId("tiles").append(tile);
  }
}

/* ---- tables ------------------------------------------------------------------------------ */

/* Columns are [title, cell of a row, kind]; kind "text" is left and cut. */
function fillTable(id, columns, rows) {
  const head = element("tr"), body = element("tbody");
  for (const [title, , kind] of columns) head.append(element("th", title, kind ? { class: kind, scope: "col" } : { scope: "col" }));
  for (const row of rows) {
    const line = element("tr");
    for (const [, cell, kind] of columns) {
      const text = cell(row);
      line.append(element("td", text, kind ? { class: kind, title: text } : {}));
    }
    body.append(line);
  }
  const top = element("thead");
  top.append(head);
  byId(id).replaceChildren(top, body);
}

const REPOSITORY = [
  ["repository", (row) => row.repo, "text", (row) => row.repo],
  ["raw", (row) => size(row.bytes_in), "", (row) => row.bytes_in],
  ["stored", (row) => size(row.bytes_stored), "", (row) => row.bytes_stored],
  ["ratio", (row) => fixed(row.ratio), "", (row) => row.ratio],
  ["by dedup", (row) => size(row.saved_by_dedup), "", (row) => row.saved_by_dedup],
  ["by delta", (row) => size(row.saved_by_delta), "", (row) => row.saved_by_delta],
  ["read per byte", (row) => fixed(row.amplification_once, 2), "", (row) => row.amplification_once],
  ["came", (row) => row.came, "", (row) => row.place],
  ["family", (row) => row.family, "text", (row) => row.family],
];
const PAGE = 25;
const shown = { column: 1, descending: true, rows: PAGE };

function fillRepositories() {
  const wanted = byId("filter").value.trim().toLowerCase();
  const key = REPOSITORY[shown.column][3];
  const found = data.repositories.filter((row) => (row.repo + "\n" + row.family).toLowerCase().includes(wanted));
  const order = (a, b) => {
    const [x, y] = [key(a), key(b)];
    return typeof x === "string" ? x.localeCompare(y) : (x ?? -1) - (y ?? -1);
  };
  found.sort((a, b) => (shown.descending ? -1 : 1) * order(a, b));
  fillTable("repositories", REPOSITORY, found.slice(0, shown.rows));
  byId("repositories").querySelectorAll("th").forEach((head, column) => {
    const button = element("button", head.textContent, { type: "button" });
    button.addEventListener("click", () => {
      shown.descending = shown.column === column ? !shown.descending : column !== 0 && column !== 8;
      shown.column = column;
      fillRepositories();
      byId("repositories").querySelectorAll("th button")[column].focus({ preventScroll: true });
    });
    head.replaceChildren(button);
    if (column === shown.column) head.setAttribute("aria-sort", shown.descending ? "descending" : "ascending");
  });
  const all = data.total.n_repositories;
  const held = data.repositories.length < all ? `the ${count(data.repositories.length)} largest of ` : "";
  byId("repositories-note").textContent = `${count(found.length)} shown of ${held}${count(all)}. A tensor is paid for by the first that `
    + "brought it, so a ratio says little without the family's.";
  byId("more").hidden = found.length <= shown.rows;
}

function fillErrors() {
  fillTable("errors", [
    ["dtype, codec", (row) => row.dtype + " " + row.codec], ["tensors", (row) => count(row.n)],
    ["mean error", (row) => fixed(row.mae, 4)], ["p90", (row) => fixed(row.p90, 4)],
    ["p99", (row) => fixed(row.p99, 4)], ["bias", (row) => fixed(row.bias, 4)],
  ], data.errors);
}

function fillSpace() {
  const { space, rejected, rejected_by_reason: reasons } = data;
  const dead = space.dead_bytes ? `${size(space.dead_bytes)} in ${count(space.n_with_dead)} of them belong to nothing that is kept; a gc frees that.`
    : "All of it belongs to files that are kept.";
  const bad = reasons.length ? ` ${count(reasons.reduce((sum, row) => sum + row.n_files, 0))} files failed a check:` : " No file failed a check.";
  byId("space").textContent = `${count(space.n_packs)} packs hold ${size(space.live_bytes + space.dead_bytes)} of blobs. ${dead}${bad}`;
  if (rejected.length) fillTable("rejected", [
    ["file", (row) => row.repo + "/" + row.path, "text"], ["check", (row) => row.reason, "text"],
    ["size", (row) => size(row.nbytes)], ["kept as bytes", (row) => row.stored ? "yes" : "no"],
  ], rejected);
}

/* ---- prices ------------------------------------------------------------------------------ */

const money = (value) => (Math.abs(value) < 0.005 ? 0 : value).toLocaleString("en", { style: "currency", currency: "USD", maximumFractionDigits: Math.abs(value) < 100 ? 2 : 0 });
const given = (id) => Math.max(Number(byId(id).value) || 0, 0);

function fillRuns() {
  const runs = [...data.runs].reverse();
  const seconds = (run) => Object.values(run.seconds).reduce((sum, s) => sum + s, 0);
  fillTable("run-table", [
    ["committed", (run) => run.committed_at], ["kind", (run) => run.kind, "text"], ["taken in", (run) => size(run.bytes_in)],
    ["packs", (run) => size(run.bytes_packs)], ["freed", (run) => run.bytes_dropped ? size(run.bytes_dropped) : ""],
    ["seconds", (run) => fixed(seconds(run), 1)],
    ["MB/s", (run) => seconds(run) ? fixed(run.bytes_in / seconds(run) / 1e6, 0) : ""],
    ["core seconds", (run) => fixed(run.core_seconds, 1)],
    ["cost", (run) => "$" + (run.core_seconds / 3600 * given("core-price")).toFixed(4)],
    ["$ per TB", (run) => run.bytes_in ? money(run.core_seconds / 3600 * given("core-price") / run.bytes_in * 1e12) : ""],
  ], runs);
}

function fillCosts() {
  const { total, reading } = data;
  const scale = given("hub-tb") * 1e12 / Math.max(total.bytes_current, 1);
  const restores = given("restores") * scale;
  const outside = byId("decode-outside").checked;
  const month = (bytes, requests, egress) => ({
    storage: bytes * scale / 1e9 * given("price-storage"),
    requests: requests * restores / 1000 * given("price-get"),
    egress: egress * restores / 1e9 * given("price-egress"),
  });
  const asIs = month(total.bytes_current, total.n_files, total.bytes_current);
  const here = month(total.bytes_packs + total.bytes_catalog, reading.blobs_once, outside ? reading.bytes_once : total.bytes_current);
  const sum = (cost) => cost.storage + cost.requests + cost.egress;
  const lines = [["storage", asIs.storage, here.storage], ["requests", asIs.requests, here.requests], ["egress", asIs.egress, here.egress], ["a month", sum(asIs), sum(here)], ["a year", 12 * sum(asIs), 12 * sum(here)]];
  fillTable("costs", [["", (line) => line[0]], ["as files", (line) => money(line[1])], ["in tstore", (line) => money(line[2])], ["saved", (line) => money(line[1] - line[2])]], lines);
  const saved = 12 * (sum(asIs) - sum(here));
  byId("cost-saved").textContent = saved >= 0 ? `${money(saved)} saved a year` : `${money(-saved)} more a year`;
}

/* ---- charts ------------------------------------------------------------------------------ */

function fillSelect(id, names) {
  names.forEach((name, i) => byId(id).append(element("option", name, { value: i })));
}

function drawChoice(id) {
  const colour = colours();
  if (id === "split") {
    const by = byId("split-by").value;
    data.splits[by].length ? drawParts("split", data.splits[by], by, colour) : nothing("split", "The store holds no file now.");
  }
  if (id === "graph") data.graphs.length ? drawGraph(data.graphs[byId("graph-of").value], colour) : nothing("graph", "No repository is a delta of another.");
  if (id === "heat") data.heat.length ? drawHeat(data.heat[byId("heat-of").value], colour) : nothing("heat", "There are no deltas, or no sketches to tell from.");
}

function drawAll() {
  const colour = colours();
  if (data.growth.length) drawGrowth(data.growth, colour); else nothing("growth", "Nothing was taken in.");
  if (data.families.length) {
    drawParts("families", data.families, "family", colour);
    drawSpread(data.families, colour);
  } else {
    nothing("families", "The store holds no file now.");
    nothing("spread", "");
  }
  if (data.predictions.length) drawScatter(data.predictions, colour); else nothing("scatter", "Nothing was predicted.");
  if (data.fanout.length) drawFanout(data.fanout, colour); else nothing("fanout", "There are no deltas.");
  if (data.runs.length) drawRuns(data.runs, colour);
  ["split", "graph", "heat"].forEach(drawChoice);
}

/* ---- theme ------------------------------------------------------------------------------- */

const dark = matchMedia("(prefers-color-scheme: dark)");
const THEMES = ["Auto", "Light", "Dark"];

function applyTheme() {
  const chosen = byId("theme").textContent;
  document.documentElement.dataset.theme = chosen === "Auto" ? (dark.matches ? "dark" : "light") : chosen.toLowerCase();
  document.documentElement.style.colorScheme = document.documentElement.dataset.theme;
}

byId("theme").addEventListener("click", () => {
  byId("theme").textContent = THEMES[(THEMES.indexOf(byId("theme").textContent) + 1) % THEMES.length];
  applyTheme();
  drawAll();
});
dark.addEventListener("change", () => { applyTheme(); drawAll(); });
let width = window.innerWidth;
window.addEventListener("resize", () => {
  const crossed = (width < 760) !== narrow();
  width = window.innerWidth;
  if (crossed) drawAll();
});

applyTheme();
fillHeadline();
fillErrors();
fillSpace();
const tb = Number((data.total.bytes_current / 1e12).toPrecision(3));
byId("hub-tb").value = Math.max(tb, 1);
byId("hub-now").textContent = `(this one: ${tb})`;
const families = data.counts.n_families;
byId("families-note").textContent = families > SHOWN ? `The ${SHOWN} largest of ${count(families)}.` : "";
fillRuns();
fillCosts();
fillRepositories();
fillSelect("graph-of", data.graphs.map((graph) => `${graph.family} (${count(graph.n_repositories)})`));
fillSelect("heat-of", data.heat.map((map) => map.repo));
byId("prices").addEventListener("input", fillCosts);
byId("core-price").addEventListener("input", fillRuns);
byId("filter").addEventListener("input", () => { shown.rows = PAGE; fillRepositories(); });
byId("more").addEventListener("click", () => { shown.rows += 4 * PAGE; fillRepositories(); });
byId("split-by").addEventListener("change", () => drawChoice("split"));
byId("graph-of").addEventListener("change", () => drawChoice("graph"));
byId("heat-of").addEventListener("change", () => drawChoice("heat"));
drawAll();
