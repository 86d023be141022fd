"use strict";
/* Draws the charts. Each function takes the element, its rows and the colours of the theme. */

const size = (bytes) => {
  if (bytes === null || bytes === undefined) return "";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let value = bytes, unit = 0;
  while (Math.abs(value) >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
  const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + " " + units[unit];
};
const count = (n) => n.toLocaleString("en");
const fixed = (value, digits = 3) => value === null || value === undefined ? "" : value.toFixed(digits);
const percent = (share, digits = 1) => (100 * share).toFixed(digits) + " %";

/* Plotly reads tags in text; names may hold anything. */
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
/* The end of a long name tells most. */
const short = (name, length) => plain(name.length > length ? "…" + name.slice(1 - length) : name);

/* "encoder.layer.3.attention.self.query.weight" as "3 self.query": on a phone the number counts. */
function layerName(name, length) {
  if (!narrow()) return short(name, length);
  const parts = name.replace(/\.weight$/, "").split(".");
  const number = parts.find((part) => /^\d+$/.test(part));
  return short((number ? number + " " : "") + parts.slice(-2).filter((part) => part !== number).join("."), 20);
}

const narrow = () => window.innerWidth < 760;

const PARTS = [
  ["stored", "bytes_stored", "stored"],
  ["saved by dedup", "saved_by_dedup", "dedup"],
  ["saved by delta", "saved_by_delta", "delta"],
  ["saved alone", "saved_by_standalone", "alone"],
];

function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "ink-2", "line", "surface", "stored", "dedup", "delta", "alone", "c5", "c6", "c7", "c8", "low", "mid", "high"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
}

/* The legend of a chart: it wraps as text does. */
function key(id, entries) {
  const element = document.getElementById(id);
  const list = document.createElement("ul");
  list.className = "keys";
  list.id = id + "-keys";
  for (const [name, tone] of entries) {
    const item = document.createElement("li"), patch = document.createElement("i");
    patch.style.background = `var(--${tone})`;
    item.append(patch, name);
    list.append(item);
  }
  document.getElementById(list.id)?.remove();
  element.before(list);
}

function draw(id, traces, layout, colour) {
  const element = document.getElementById(id);
  const axis = {
    gridcolor: colour.line, linecolor: colour.line, zerolinecolor: colour.line,
    tickfont: { color: colour["ink-2"], size: 13 }, automargin: true, fixedrange: true,
  };
  const own = layout.xaxis || {}, other = layout.yaxis || {};
  const titleOf = (text) => text && { text, font: { color: colour["ink-2"], size: 13 }, standoff: 8 };
  const whole = {
    height: 340, margin: { l: 8, r: 8, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour.ink },
    hoverlabel: { bgcolor: colour.surface, bordercolor: colour.line, font: { color: colour.ink, size: 13 } },
    showlegend: false, dragmode: false, bargap: 0.35, ...layout,
    xaxis: { ...axis, ...own, title: titleOf(own.title) }, yaxis: { ...axis, ...other, title: titleOf(other.title) },
  };
  element.replaceChildren();
  element.classList.remove("none");
  return Plotly.newPlot(element, traces, whole, { displayModeBar: false, responsive: true });
}

function nothing(id, why) {
  const element = document.getElementById(id);
  const pick = element.parentElement.querySelector(".pick");
  if (pick) pick.hidden = true;
  Plotly.purge(element);
  element.classList.add("none");
  element.textContent = why;
}

/* A linear axis of bytes with ticks that people read. */
function bytesAxis(most, ticks) {
  const step = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
  const each = [0.2, 0.5, 1, 2, 5].map((f) => f * step).find((s) => most / s <= ticks) || step * 2;
  const values = [];
  for (let v = 0; v <= most * 1.001; v += each) values.push(v);
  return { tickvals: values, ticktext: values.map((v) => size(v).replace(/\.0+ /, " ")), tickangle: 0, range: [0, most * 1.03], automargin: true };
}

function drawGrowth(rows, colour) {
  const x = rows.map((row) => row.place);
  const lines = [
    ["raw", "total_in", "c8"], ["after dedup", "total_after_dedup", "dedup"], ["stored", "total_stored", "stored"],
  ];
  const traces = lines.map(([name, part, tone]) => ({
    type: "scatter", mode: rows.length > 60 ? "lines" : "lines+markers", name, x, y: rows.map((row) => row[part]),
    line: { color: colour[tone], width: 2.5 }, marker: { color: colour[tone], size: 6 },
    fill: part === "total_stored" ? "tozeroy" : undefined, fillcolor: colour[tone] + "22",
    text: rows.map((row) => plain(row.repo) + "<br>" + row.committed_at + "<br>" + name + " " + size(row[part])),
    hovertemplate: "%{text}<extra></extra>",
  }));
  const ends = lines.map(([, part]) => ({
    x: x.at(-1), y: rows.at(-1)[part], text: size(rows.at(-1)[part]), showarrow: false, xanchor: "left", xshift: 8,
    font: { color: colour.ink, size: 13 },
  }));
  const span = Math.max(x.at(-1) - x[0], 1);
  key("growth", lines.map(([name, , tone]) => [name, tone]));
  draw("growth", traces, {
    height: 360, annotations: ends,
    xaxis: { title: "repositories, as they came", range: [x[0] - 0.01 * span, x.at(-1) + (narrow() ? 0.27 : 0.1) * span], zeroline: false },
    yaxis: bytesAxis(Math.max(...rows.map((row) => row.total_in)) * 1.05, 5),
  }, colour);
}

const rowsHeight = (rows) => 50 + 32 * Math.max(rows.length, 2);

const SHOWN = 16;

function drawParts(id, rows, by, colour) {
  const shown = rows.slice(0, SHOWN).reverse();
  const names = shown.map((row) => short(row[by] ?? "lost", narrow() ? 20 : 34));
  const traces = PARTS.map(([name, part, tone]) => ({
    type: "bar", orientation: "h", name, y: shown.map((_, i) => i), x: shown.map((row) => Math.max(row[part], 0)),
    marker: { color: colour[tone], line: { color: colour.surface, width: 1 } },
    text: shown.map((row) => plain(row[by] ?? "lost") + "<br>" + name + " " + size(row[part]) + "<br>ratio " + fixed(row.ratio)),
    textposition: "none", hovertemplate: "%{text}<extra></extra>",
  }));
  const notes = shown.map((row, i) => ({
    x: row.bytes_in, y: i, text: fixed(row.ratio, 2), showarrow: false, xanchor: "left", xshift: 4,
    font: { color: colour["ink-2"], size: 12 },
  }));
  const axis = bytesAxis(Math.max(...shown.map((row) => row.bytes_in)), narrow() ? 3 : 7);
  axis.range = [0, axis.range[1] * (narrow() ? 1.16 : 1.07)];
  key(id, PARTS.map(([name, , tone]) => [name, tone]));
  draw(id, traces, {
    barmode: "stack", annotations: notes, height: rowsHeight(shown), xaxis: axis,
    yaxis: { tickvals: shown.map((_, i) => i), ticktext: names, showgrid: false, zeroline: false, range: [-0.6, shown.length - 0.4] },
  }, colour);
}

function drawSpread(rows, colour) {
  const shown = rows.slice(0, SHOWN).reverse();
  const quantile = (i) => shown.map((row) => row.quantiles[i]);
  const at = shown.map((_, i) => i);
  draw("spread", [{
    type: "box", orientation: "h", y: at, lowerfence: quantile(0), q1: quantile(1), median: quantile(2),
    q3: quantile(3), upperfence: quantile(4), marker: { color: colour.stored }, line: { color: colour.stored, width: 2 },
    fillcolor: colour.stored + "33", width: 0.5, hoverinfo: "x", name: "",
  }], {
    height: rowsHeight(shown), xaxis: { range: [0, 1.05], dtick: 0.25, zeroline: false },
    yaxis: {
      tickvals: at, showgrid: false, zeroline: false, range: [-0.6, shown.length - 0.4],
      ticktext: shown.map((row) => narrow() ? short(row.family, 20) : row.n_repositories === 1 ? "one" : count(row.n_repositories)),
    },
  }, colour);
  key("spread", [[narrow() ? "ratios of its repositories" : "repositories of the family, and their ratios", "stored"]]);
}

/* Rows of a tree, parents before children, each with its depth. */
function treeOf(nodes) {
  const known = new Set(nodes.map((node) => node.repo));
  const children = new Map();
  for (const node of nodes) {
    const parent = known.has(node.parent) ? node.parent : null;
    children.set(parent, [...(children.get(parent) || []), node]);
  }
  const rows = [];
  const walk = (parent, depth) => {
    for (const node of children.get(parent) || []) {
      rows.push({ ...node, depth, row: rows.length });
      walk(node.repo, depth + 1);
    }
  };
  walk(null, 0);
  return rows;
}

function drawGraph(graph, colour) {
  const rows = treeOf(graph.nodes);
  const place = new Map(rows.map((row) => [row.repo, row]));
  const given = new Map(graph.edges.map((edge) => [edge.repo + "\n" + edge.base_repo, edge]));
  const branches = { x: [], y: [] }, further = { x: [], y: [] };
  for (const row of rows) {
    const parent = place.get(row.parent);
    if (!parent) continue;
    branches.x.push(parent.depth, parent.depth, row.depth, null);
    branches.y.push(parent.row, row.row, row.row, null);
  }
  for (const edge of graph.edges) {
    const from = place.get(edge.base_repo), to = place.get(edge.repo);
    if (to.parent === edge.base_repo) continue;
    const middle = Math.max(from.depth, to.depth) + 0.25;
    further.x.push(from.depth, middle, to.depth, null);
    further.y.push(from.row, (from.row + to.row) / 2, to.row, null);
  }
  const most = Math.max(...rows.map((row) => row.bytes_in), 1);
  const tell = (row) => {
    const edge = given.get(row.repo + "\n" + row.parent);
    const delta = edge ? "<br>" + count(edge.n_deltas) + " deltas of " + plain(row.parent) + ", ratio " + fixed(edge.ratio) : "";
    return plain(row.repo) + "<br>" + size(row.bytes_in) + " in " + size(row.bytes_stored) + delta;
  };
  const deepest = Math.max(...rows.map((row) => row.depth));
  const unit = narrow() ? 1.6 : 1;
  draw("graph", [
    { type: "scatter", mode: "lines", ...branches, line: { color: colour["ink-2"], width: 1.5 }, hoverinfo: "skip" },
    { type: "scatter", mode: "lines", ...further, line: { color: colour.alone, width: 1.2, dash: "dot", shape: "spline" }, hoverinfo: "skip" },
    {
      type: "scatter", mode: "markers+text", x: rows.map((row) => row.depth), y: rows.map((row) => row.row),
      text: rows.map((row) => "  " + short(row.repo, narrow() ? 26 : 60) + "  " + fixed(row.ratio, 2)), textposition: "middle right", cliponaxis: false,
      textfont: { color: colour.ink, size: 13 },
      hovertext: rows.map(tell), hovertemplate: "%{hovertext}<extra></extra>",
      marker: {
        size: rows.map((row) => 8 + 12 * Math.sqrt(row.bytes_in / most)), color: rows.map((row) => row.ratio),
        opacity: 1, cmin: 0, cmax: 1, colorscale: [[0, colour.low], [0.5, colour.mid], [1, colour.high]], line: { color: colour.stored, width: 1.5 },
      },
    },
  ], {
    height: 40 + 28 * rows.length,
    xaxis: { visible: false, range: [-0.15 * (deepest + 1), deepest + 2.4 * unit] },
    yaxis: { visible: false, range: [rows.length - 0.3, -0.7] },
  }, colour);
}

function drawHeat(map, colour) {
  const shown = map.rows.length;
  const names = map.rows.map((name) => layerName(name, 48));
  const columns = map.columns.map((name) => short(name, narrow() ? 18 : 26));
  const tell = map.values.map((row, i) => row.map((value, j) =>
    plain(map.rows[i]) + "<br>" + (j ? "delta of " + plain(map.columns[j]) : "alone") + "<br>predicted " + fixed(value)
    + (map.chosen[i] === j ? "<br>in use, reached " + fixed(map.reached[i]) : "")));
  const used = map.chosen.map((column, row) => [column, row]).filter(([column]) => column !== null);
  const step = Math.max(1, Math.ceil(shown / (narrow() ? 40 : 60)));
  const ticks = names.map((_, i) => i).filter((i) => i % step === 0);
  const most = Math.max(...map.values.flat().filter((value) => value !== null), 0.1);
  draw("heat", [
    {
      type: "heatmap", z: map.values, text: tell, hovertemplate: "%{text}<extra></extra>", xgap: 1, ygap: shown > 80 ? 0 : 1,
      zmin: 0, zmax: most, colorscale: [[0, colour.low], [0.4, colour.mid], [1, colour.high]],
      colorbar: {
        orientation: "h", thickness: 10, len: 0.7, y: -0.01, yanchor: "top", outlinewidth: 0, tickfont: { color: colour["ink-2"] },
        title: { text: "predicted ratio", side: "top", font: { color: colour["ink-2"], size: 13 } },
      },
    },
    {
      type: "scatter", mode: "markers", x: used.map(([column]) => column), y: used.map(([, row]) => row),
      marker: { color: colour.alone, size: narrow() ? 5 : 6, line: { color: colour.surface, width: 1 } }, hoverinfo: "skip",
    },
  ], {
    height: 210 + Math.max(160, Math.min(shown * 18, 1100)),
    margin: narrow() ? { l: 128, r: 4, t: 130, b: 60 } : { l: 8, r: 40, t: 8, b: 8 },
    xaxis: {
      side: "top", tickangle: narrow() ? -90 : -50, tickvals: columns.map((_, i) => i), ticktext: columns, showgrid: false,
      zeroline: false, range: [-0.5, columns.length - 0.5], automargin: !narrow(), tickfont: { size: narrow() ? 11 : 12, color: colour["ink-2"] },
    },
    yaxis: {
      range: [shown - 0.5, -0.5], tickvals: ticks, ticktext: ticks.map((i) => names[i]), showgrid: false, zeroline: false,
      automargin: !narrow(), tickfont: { size: narrow() ? 11 : 12, color: colour["ink-2"] },
    },
  }, colour);
}

function drawScatter(rows, colour) {
  const tones = ["stored", "delta", "alone", "dedup", "c5", "c6", "c7", "c8"];
  const kinds = [...new Set(rows.map((row) => row.dtype + " " + row.planned))].sort();
  const traces = kinds.map((kind, i) => {
    const own = rows.filter((row) => row.dtype + " " + row.planned === kind);
    return {
      type: "scatter", mode: "markers", name: kind, x: own.map((row) => row.predicted), y: own.map((row) => row.reached),
      marker: { color: colour[tones[i % tones.length]], size: 6, opacity: 0.65 },
      text: own.map((row) => kind + "<br>predicted " + fixed(row.predicted) + "<br>reached " + fixed(row.reached) + "<br>" + size(row.raw_nbytes)),
      hovertemplate: "%{text}<extra></extra>",
    };
  });
  key("scatter", kinds.map((kind, i) => [kind, tones[i % tones.length]]));
  traces.unshift({
    type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { color: colour["ink-2"], width: 1, dash: "dot" }, hoverinfo: "skip",
  });
  draw("scatter", traces, {
    height: 420, xaxis: { title: "predicted ratio", range: [0, 1.02], dtick: 0.2 }, yaxis: { title: "reached ratio", range: [0, 1.02], dtick: 0.2 },
  }, colour);
}

function drawFanout(rows, colour) {
  draw("fanout", [{
    type: "bar", x: rows.map((row) => row.n_deltas), y: rows.map((row) => row.n_bases), marker: { color: colour.delta },
    text: rows.map((row) => count(row.n_bases) + " bases with " + count(row.n_deltas) + " deltas, " + size(row.bytes_in) + " raw"),
    textposition: "none", hovertemplate: "%{text}<extra></extra>",
  }], { height: 280, xaxis: { title: "deltas of a base", rangemode: "tozero" }, yaxis: { title: "bases" } }, colour);
}

const STAGES = {
  start: "c8", list: "c8", scan: "stored", dedup: "dedup", choose: "c7", measure: "c6", fit: "alone", plan: "c5", encode: "delta", commit: "c7",
};

function drawRuns(runs, colour) {
  const found = new Set(runs.flatMap((run) => Object.keys(run.seconds)));
  const stages = [...Object.keys(STAGES).filter((stage) => found.delete(stage)), ...[...found].sort()];
  const tones = stages.map((stage) => STAGES[stage] || "c8");
  const names = runs.map((_, i) => i);
  key("runs", stages.map((stage, i) => [stage, tones[i]]));
  draw("runs", stages.map((stage, i) => ({
    type: "bar", orientation: "h", name: stage, y: names, x: runs.map((run) => run.seconds[stage] || 0),
    marker: { color: colour[tones[i]], line: { color: colour.surface, width: 1 } },
    text: runs.map((run) => run.kind + " " + run.committed_at + "<br>" + stage + " " + fixed(run.seconds[stage] || 0, 1) + " s"),
    textposition: "none", hovertemplate: "%{text}<extra></extra>",
  })), {
    barmode: "stack", height: rowsHeight(runs) + 30, xaxis: { title: "seconds", zeroline: false },
    yaxis: { tickvals: names, ticktext: runs.map((run) => run.committed_at.slice(narrow() ? 5 : 0, 16)), range: [runs.length - 0.4, -0.6], showgrid: false, zeroline: false },
  }, colour);
}
