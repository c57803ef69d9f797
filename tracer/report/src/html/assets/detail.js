// SPDX-License-Identifier: Apache-2.0 OR MIT
// All that is known of one function.

let chosen = null;

/** Shows a function, or none. */
function choose(id) {
  chosen = id;
  address.set("function", id);
  drawDetail();
  tell("choose");
}

function drawDetail() {
  const panel = byId("detail");
  panel.hidden = chosen === null;
  if (chosen === null) return panel.replaceChildren();
  const fn = functions[chosen];
  const row = figures.rows.get(chosen);
  const close = el("button", { class: "close", type: "button", "aria-label": "Close (Esc)", onclick: () => choose(null) }, "✕");
  const parts = [close, el("h2", {}, swatch(fn.library), fn.short), el("p", { class: "code soft" }, fn.name)];
  if (isMostlyTracing(chosen)) parts.push(el("p", {}, el("span", { class: "mark" }, `${MOSTLY_TRACING[1]}.`)));
  parts.push(row ? figureList(row) : el("p", { class: "soft" }, "Its figures are not on this page: it has less time than the functions in the table, or no call."));
  parts.push(el("h3", {}, "Called by"), edgeTable(data.edges.rows.filter((edge) => edge[1] === chosen), 0));
  parts.push(el("h3", {}, "Calls"), edgeTable(data.edges.rows.filter((edge) => edge[0] === chosen), 1));
  const sites = data.sites.rows.filter((edge) => edge[1] === chosen && edge[0] >= 0);
  if (sites.length) parts.push(el("h3", {}, "Called at"), edgeTable(sites, 0, "call site"));
  parts.push(el("h3", {}, "Durations"), histogram(histograms.get(chosen)));
  if (heatMaps.has(chosen)) parts.push(el("h3", {}, "Durations over time"), heatMap(heatMaps.get(chosen), 180));
  parts.push(...slowest(chosen), ...valuesOf(chosen), el("h3", {}, "Probes"), probes(fn));
  panel.replaceChildren(...parts);
  panel.scrollTop = 0;
}

function figureList(row) {
  const list = el("dl");
  data.functions.columns.forEach((column, place) => {
    const value = row[place + 1];
    const isPlain = ["calls", "timed", "inclusive_ns", "exclusive_ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "min_ns", "max_ns", "share"].includes(column.key);
    const isNothing = value === null || plain(value) === 0;
    if (!isPlain && isNothing) return;
    const shown = value === null ? UNKNOWN : column.kind === "time" ? time(value) : column.kind === "share" ? percent(value) : column.kind === "ratio" ? String(value) : count(value);
    const note = correctedNote(column.key);
    list.append(el("dt", {}, column.title), el("dd", { "data-key": column.key, "data-value": value === null ? "" : plain(value), title: column.kind === "time" && value !== null ? `${count(plain(value))} ns` : null }, shown, note ? el("span", { class: "soft" }, note) : ""));
  });
  return list;
}

/** The time without tracing, where it is known. */
function correctedNote(key) {
  const place = { inclusive_ns: 0, exclusive_ns: 2 }[key];
  const times = corrected.get(chosen);
  if (place === undefined || !times || times[place] === null) return "";
  return `  (${time(times[place])} ± ${time(times[place + 1])} without tracing)`;
}

/** The other functions of some edges, `side` 0: callers or places, 1: callees. */
function edgeTable(edges, side, title = side ? "callee" : "caller") {
  if (edges.length === 0) return el("p", { class: "soft" }, side ? "no traced function" : "nobody on this page");
  const other = (edge) => edge[side];
  const name = (edge) => (other(edge) < 0 ? "no traced function" : functions[other(edge)].name);
  // What has no library is no traced function: a place, or a function without probes.
  const isTraced = (edge) => other(edge) >= 0 && functions[other(edge)].library >= 0;
  const columns = [
    { key: "function", title, kind: "name", value: name, render: (edge) => (!isTraced(edge) ? name(edge) : [swatch(functions[other(edge)].library), functionLink(functions[other(edge)])]) },
    { key: "calls", title: "calls", kind: "count", value: (edge) => edge[2] },
    { key: "inclusive_ns", title: "inclusive", kind: "time", bar: true, value: (edge) => edge[4] },
    { key: "exclusive_ns", title: "exclusive", kind: "time", value: (edge) => edge[5] },
  ];
  const element = sortedTable(columns, edges, { sort: "inclusive_ns", most: 12, id: other }).element;
  element.dataset.table = `${title}s`;
  return element;
}

function slowest(id) {
  const timed = calls.filter((call) => call.fn.id === id && call.duration !== null).sort((a, b) => b.duration - a.duration).slice(0, 8);
  if (timed.length === 0) return [];
  const rows = timed.flatMap((call) => {
    const show = { class: "row", onclick: () => tell("show call", call) };
    const row = el("tr", show, el("td", {}, time(call.duration)), el("td", { class: "text" }, `at ${moment(call.start)}`),
      el("td", { class: "text" }, threadName(data.lanes.lanes[call.lane].location)), el("td", { class: "text" }, call.ending ? ENDINGS[call.ending] : ""));
    return call.values ? [row, el("tr", show, el("td", { class: "values", colspan: 4 }, el("code", {}, withNames(call))))] : [row];
  });
  return [el("h3", {}, "Slowest calls, with their place in the timeline"), el("table", {}, el("tbody", {}, rows))];
}

function probes(fn) {
  const list = el("dl");
  const add = (term, value) => list.append(el("dt", {}, term), el("dd", {}, value));
  add("library", fn.library >= 0 ? libraries[fn.library].path : "unknown");
  if (fn.offset !== undefined) add("place", el("code", {}, `0x${fn.offset.toString(16)}, ${count(fn.size)} bytes`));
  if (fn.entry) add("entry", ENTRIES[fn.entry] || fn.entry);
  if (fn.exit) add("return", EXITS[fn.exit] || fn.exit);
  if (fn.symbols.length) add("symbols", el("code", {}, fn.symbols.join("\n")));
  return list;
}

// ---- Arguments and results ----

const values = new Map(((data.calls.values && data.calls.values.functions) || []).map(([id, known, columns]) => [id, { known, columns }]));
for (const [place, of] of (data.calls.values && data.calls.values.calls) || []) calls[place].values = of;

/** The values of a call: arguments, then what was read when it returned. */
function withNames(call) {
  const { columns } = values.get(call.fn.id);
  const shown = call.values.map((value, place) => [columns[place], value]).map(([[name, unit, atExit], value]) => [atExit, `${name} ${value === null ? UNKNOWN : value}${unit && value !== null ? ` ${unit}` : ""}`]);
  const part = (atExit) => shown.filter(([at]) => at === atExit).map(([, text]) => text).join(", ");
  return part(true) ? `${part(false)} → ${part(true)}` : part(false);
}

/** What the values of a function's calls were. */
function valuesOf(id) {
  const of = values.get(id);
  if (!of) return [];
  const number = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 3 });
  const among = data.calls.all ? "" : `, of the ${count(of.known)} calls on this page`;
  const list = el("dl", { "data-table": "values" });
  for (const [name, unit, atExit, known, numbers, different, most] of of.columns) {
    const term = el("dt", {}, atExit ? "→ " : "", name, unit ? ` in ${unit}` : "");
    const parts = [];
    if (numbers) parts.push(el("div", {}, numbers[0] === numbers[1] ? `always ${number(numbers[0])}` : `${number(numbers[0])} to ${number(numbers[1])}, sum ${number(numbers[2])}`));
    else if (different === 1) parts.push(el("div", {}, "always ", el("code", {}, most[0][0])));
    if (different > 1 && (most[0][1] > 1 || different <= 4)) {
      const shown = most.filter(([, calls]) => calls > 1 || different <= most.length);
      parts.push(el("div", { class: "soft" }, shown.flatMap(([value, calls], place) => [place ? ", " : "", el("code", {}, value), ` × ${count(calls)}`]), different > shown.length ? `, and ${count(different - shown.length)} others` : ""));
    } else if (different > 1) parts.push(el("div", { class: "soft" }, `${count(different)} different ones`));
    if (known < of.known) parts.push(el("div", { class: "soft" }, `not known of ${count(of.known - known)} ${of.known - known === 1 ? "call" : "calls"}`));
    list.append(term, el("dd", {}, parts));
  }
  return [el("h3", {}, `Arguments and results${among}`), list];
}
