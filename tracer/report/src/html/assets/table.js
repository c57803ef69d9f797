// SPDX-License-Identifier: Apache-2.0 OR MIT
// Tables that sort and filter, and the table of functions.

/**
 * A table. A column has `key`, `title`, `kind` (name, text, count, time, share, ratio), `value(row)` and perhaps
 * `render(row)` and `bar`. Options: `sort` (key), `descending`, `filter(row)`, `most` rows at first, `onrow(row)`, `id(row)`.
 */
function sortedTable(columns, rows, options) {
  const state = { key: options.sort, descending: options.descending !== false, most: options.most || 100 };
  const head = el("thead");
  const body = el("tbody");
  const more = el("button", { class: "more", type: "button", onclick() { state.most = Infinity; draw(); } });
  const wrapper = el("div", { class: "panel" }, el("div", { class: "scroll" }, el("table", {}, head, body)), more);
  let shown = [];
  const table = { element: wrapper, draw, columns, get shown() { return shown; } };

  for (const column of columns) {
    column.values = rows.map((row) => plain(column.value(row))).filter((value) => typeof value === "number").sort((a, b) => a - b);
    column.largest = column.values[column.values.length - 1] || 0;
    column.middle = column.values[column.values.length >> 1] || 0;
  }
  for (const column of columns.filter((column) => column.kind === "time")) {
    // Durations spread over many powers of ten: their unit is one in which the usual ones have digits before the point.
    const isOf = (other) => other.kind === "time" && !other.hidden && other.group === column.group;
    const alike = column.group && !column.hidden ? columns.filter(isOf) : [column];
    const middles = alike.map((other) => other.middle).filter((middle) => middle > 0);
    const largest = Math.max(...alike.map((other) => other.largest));
    // A millisecond has too many digits in nanoseconds.
    const size = column.group === "duration" ? Math.max(100 * Math.min(...middles), largest >= 1e6 ? 1e5 : 0) : largest;
    column.unit = column.unit || unitFor(Number.isFinite(size) ? size : 0);
  }

  /** What a row goes by in the order of a column: its value, or what that is without tracing. */
  const weight = (column, row) => (column.weight ? column.weight(row) : plain(column.value(row)));

  function compare(a, b) {
    const column = columns.find((column) => column.key === state.key) || columns[0];
    const [x, y] = [weight(column, a), weight(column, b)];
    // What is not known comes last, whatever the order.
    if (x === null || x === undefined) return y === null || y === undefined ? 0 : 1;
    if (y === null || y === undefined) return -1;
    const order = typeof x === "string" ? x.localeCompare(y) : x - y;
    return state.descending ? -order : order;
  }

  function drawHead() {
    head.replaceChildren(el("tr", {}, columns.filter((column) => !column.hidden).map((column) => {
      const isSorted = column.key === state.key;
      const button = el("button", { type: "button", onclick() {
        state.descending = isSorted ? !state.descending : typeof column.value(rows[0] || []) !== "string";
        state.key = column.key;
        draw();
      } }, column.title, isSorted ? (state.descending ? " ↓" : " ↑") : "");
      const order = isSorted ? (state.descending ? "descending" : "ascending") : null;
      const unit = column.unit ? el("small", {}, column.unit[0]) : null;
      return el("th", { class: cellClass(column), "aria-sort": order, title: column.help, scope: "col" }, button, unit);
    })));
  }

  function cell(column, row) {
    const value = column.value(row);
    const raw = plain(value);
    const data = { class: cellClass(column), "data-key": column.key, "data-value": raw === null || raw === undefined ? "" : raw };
    const td = el("td", data, column.render ? column.render(row) : shownValue(column, value));
    if (column.bar && column.largest > 0 && typeof raw === "number") {
      const [all, own] = [raw, weight(column, row)].map((time) => (100 * time / column.largest).toFixed(2));
      td.style.background = bar(own, all);
    }
    return td;
  }

  function draw() {
    shown = (options.filter ? rows.filter(options.filter) : rows.slice()).sort(compare);
    drawHead();
    body.replaceChildren(...shown.slice(0, state.most).map((row) => {
      const id = options.id ? options.id(row) : null;
      const tr = el("tr", { class: options.onrow ? "row" : null, "data-id": id }, columns.filter((column) => !column.hidden).map((column) => cell(column, row)));
      if (options.onrow) tr.addEventListener("click", () => options.onrow(row));
      if (options.chosen && options.chosen() === id) tr.classList.add("chosen");
      return tr;
    }));
    if (shown.length === 0) body.append(el("tr", {}, el("td", { class: "name soft", colspan: columns.length }, "nothing to show")));
    more.hidden = shown.length <= state.most;
    more.textContent = `show all ${count(shown.length)}`;
  }

  draw();
  return table;
}

/** A bar behind a figure, in percent of its cell; what is tracing's own, between `own` and `all`, is hatched. */
function bar(own, all) {
  const solid = `linear-gradient(to left, var(--bar) ${own}%, transparent ${own}%)`;
  return all - own < 0.5 ? solid : `${solid}, repeating-linear-gradient(135deg, var(--bar) 0 2px, transparent 2px 5px) right / ${all}% 100% no-repeat`;
}

const cellClass = (column) => (column.kind === "name" ? "name" : column.kind === "text" ? "text" : column.kind === "long" ? "text long" : null);

function shownValue(column, value) {
  if (value === null || value === undefined) return el("span", { class: "unknown" }, UNKNOWN);
  switch (column.kind) {
    case "time": return timeIn(column.unit, value);
    case "count": return count(value);
    case "share": return percent(value);
    case "ratio": return Number(value).toLocaleString("en-US", { maximumFractionDigits: 3 });
    default: return String(value);
  }
}

/** A name that may go on in a new line behind `::`. */
const breakable = (name) => name.split("::").flatMap((part, place) => (place ? ["::", el("wbr"), part] : [part]));

/** A function's name that leads to its details, with its library's colour. */
function functionLink(fn) {
  const open = (event) => { event.preventDefault(); event.stopPropagation(); choose(fn.id); };
  return el("a", { class: "link", href: `#function=${fn.id}`, title: fn.name, onclick: open }, breakable(fn.short));
}

/** The same with the library's name. */
function functionName(fn, mark) {
  return [swatch(fn.library), functionLink(fn), isOneLibrary ? null : el("span", { class: "lib" }, libraryName(fn)), mark ? el("span", { class: "mark", title: mark[1] }, mark[0]) : null];
}

// ---- Functions ----

const figures = {
  /** The place of a column in a row of functions. */
  place: (key) => data.functions.columns.findIndex((column) => column.key === key) + 1,
  rows: new Map(data.functions.rows.map((row) => [row[0], row])),
  /** A figure of a function, null where it is not known. */
  of(id, key) {
    const row = this.rows.get(id);
    const place = this.place(key);
    return row && place > 0 ? row[place] : null;
  },
};
/** The columns of shares, which are of the time without tracing, of the columns of sums. */
const SHARES = { inclusive_ns: "share", exclusive_ns: "exclusive_share" };

/** A sum of a row without what tracing took of it, as far as that is known. */
function ownTime(row, key) {
  const share = row[figures.place(SHARES[key])];
  return share === null ? null : share * data.total_ns;
}

const corrected = new Map(data.corrected.map(([id, ...times]) => [id, times]));

/** Whether most of a function's recorded time may be tracing's own. */
function isMostlyTracing(id) {
  const times = corrected.get(id);
  return times !== undefined && (figures.of(id, "timed") > 0) && (times[0] === null || times[2] === null);
}

const MOSTLY_TRACING = ["mostly tracing", "Tracing took a third or more of the recorded time, so its time without tracing cannot be said"];
/** Columns whose times are in one unit, as the eye goes from one to the other. */
const GROUPS = { inclusive_ns: "sum", exclusive_ns: "sum", min_ns: "duration", mean_ns: "duration", p50_ns: "duration", p90_ns: "duration", p99_ns: "duration", p999_ns: "duration", max_ns: "duration" };
const HELP = {
  calls: "Calls on record, of every ending", timed: "Calls whose duration is known",
  inclusive_ns: "Time with callees, recursion counted once", exclusive_ns: "Time without traced callees; it adds up over functions",
  mean_ns: "Mean duration of timed calls", p50_ns: "Half of the timed calls took no longer", p99_ns: "One timed call in a hundred took longer",
  max_ns: "The slowest timed call", lost: "Calls known to be missing",
};

function drawFunctions() {
  const section = byId("functions");
  const { columns, rows, left_out } = data.functions;
  if (rows.length === 0) {
    section.append(el("p", { class: "empty" }, "No call was recorded."));
    return;
  }
  hint("functions", "Click a function for its callers, callees, latencies and slowest calls. Exclusive time is without traced callees, and adds up.", leftOut(left_out, "functions with less time"));
  const order = ["exclusive_ns", "inclusive_ns", "calls"];
  const ranked = columns.map((column, place) => ({ ...column, place: place + 1 }));
  ranked.sort((a, b) => ((order.indexOf(a.key) + 1) || 9) - ((order.indexOf(b.key) + 1) || 9) || a.place - b.place);
  const usual = ranked.map((column) => ({
    key: column.key, title: column.title, kind: column.kind, help: HELP[column.key], hidden: !column.shown, usual: column.shown,
    bar: Boolean(SHARES[column.key]), weight: SHARES[column.key] && ((row) => ownTime(row, column.key)), group: GROUPS[column.key], value: (row) => row[column.place],
  }));
  const name = {
    key: "function", title: "function", kind: "name", value: (row) => functions[row[0]].name,
    render: (row) => functionName(functions[row[0]], isMostlyTracing(row[0]) ? MOSTLY_TRACING : null),
  };
  const table = sortedTable([name, ...usual], rows, {
    sort: "exclusive_ns", most: 60, id: (row) => row[0], onrow: (row) => choose(row[0]), chosen: () => chosen,
    filter: (row) => !search.found || search.found.has(row[0]),
  });
  const all = el("button", { type: "button", "aria-pressed": "false", onclick() {
    const isAll = all.getAttribute("aria-pressed") !== "true";
    all.setAttribute("aria-pressed", isAll);
    usual.forEach((column) => { column.hidden = !isAll && !column.usual; });
    table.draw();
  } }, "All columns");
  section.append(el("div", { class: "tools" }, legend(6), el("span", { class: "gap" }), all), table.element);
  on("search", table.draw);
  on("choose", () => {
    for (const row of table.element.querySelectorAll("tr.row")) row.classList.toggle("chosen", Number(row.dataset.id) === chosen);
  });
  functionTable = table;
}
let functionTable = null;

// ---- Call tree ----

/** The nodes of rows, callers first; their weights are times without tracing. */
const tree = (({ rows, total_ns }) => {
  const nodes = rows.map(([parent, name, calls, timed, inclusive, exclusive, share], id) => (
    { id, parent, fn: functions[name], calls, timed, inclusive, exclusive, share, children: [], weight: Math.round((share || 0) * total_ns), depth: 0 }
  ));
  const roots = [];
  for (const node of nodes) {
    node.depth = node.parent >= 0 ? nodes[node.parent].depth + 1 : 0;
    (node.parent >= 0 ? nodes[node.parent].children : roots).push(node);
  }
  // Callees may be timed where their caller was not; callers come before their callees.
  for (const node of nodes.slice().reverse()) {
    node.weight = Math.max(node.weight, node.children.reduce((sum, child) => sum + child.weight, 0));
  }
  const total = roots.reduce((sum, node) => sum + node.weight, 0);
  return { nodes, roots, total };
})(data.tree);

function drawTree() {
  const section = byId("tree");
  if (tree.nodes.length === 0) return section.remove();
  hint("tree", "All threads together; a row is a chain of callers. Arrow keys move, open and close.", leftOut(data.tree.left_out, "call paths with less time"));
  const open = new Set();
  const most = Math.max(...tree.nodes.map((node) => node.weight));
  const unit = unitFor(most);
  // The path that takes most time is open from the begin.
  let opened = tree.roots;
  for (let depth = 0; depth < 8 && opened.length; depth++) {
    const first = opened.reduce((a, b) => (b.weight > a.weight ? b : a));
    if (first.weight < 0.02 * tree.total) break;
    open.add(first.id);
    opened = first.children;
  }
  const body = el("tbody");
  const head = ["function", "calls", "share", ["inclusive", unit[0]], ["exclusive", unit[0]]].map((title, place) =>
    el("th", { class: place === 0 ? "name" : null, scope: "col" }, Array.isArray(title) ? [title[0], el("small", {}, title[1])] : title));
  const toggle = (node) => { if (!open.delete(node.id)) open.add(node.id); draw(); };
  let focused = null;

  function row(node, depth) {
    const isOpen = open.has(node.id);
    const twist = node.children.length
      ? el("button", { class: "twist", type: "button", tabindex: -1, "aria-label": isOpen ? "close" : "open" }, isOpen ? "▾" : "▸")
      : el("span", { class: "twist" });
    const name = el("td", { class: "name" }, twist, functionName(node.fn));
    name.style.paddingLeft = `${12 + 18 * Math.min(depth, 40)}px`;
    const known = (value) => (node.timed === 0 && node.calls > 0 ? null : value);
    const share = el("td", { "data-key": "share" }, node.share === null ? UNKNOWN : percent(node.share));
    const part = (100 * node.weight / (tree.total || 1)).toFixed(2);
    share.style.background = bar(part, part);
    const figure = (key, value, shown) => el("td", { "data-key": key, "data-value": value === null ? "" : value }, shown);
    return el("tr", {
      class: "row", "data-id": node.id, tabindex: 0, "aria-expanded": node.children.length ? String(isOpen) : null,
      onclick() { toggle(node); },
    }, name, figure("calls", node.calls, count(node.calls)), share,
    figure("inclusive_ns", known(node.inclusive), timeIn(unit, known(node.inclusive))),
    figure("exclusive_ns", known(node.exclusive), timeIn(unit, known(node.exclusive))));
  }

  function draw() {
    const rows = [];
    const matching = search.found && new Set();
    if (matching) {
      for (const node of tree.nodes) {
        for (let at = search.found.has(node.fn.id) ? node : null; at && !matching.has(at.id); at = tree.nodes[at.parent]) matching.add(at.id);
      }
    }
    const add = (node, depth) => {
      if (rows.length > 1500 || (matching && !matching.has(node.id))) return;
      rows.push(row(node, depth));
      if (open.has(node.id) || (matching && rows.length < 300)) node.children.forEach((child) => add(child, depth + 1));
    };
    tree.roots.forEach((node) => add(node, 0));
    body.replaceChildren(...rows);
    const again = focused !== null && body.querySelector(`[data-id="${focused}"]`);
    if (again) again.focus();
  }

  body.addEventListener("focusin", (event) => { focused = event.target.closest("tr").dataset.id; });
  body.addEventListener("focusout", (event) => { if (event.relatedTarget) focused = null; });
  body.addEventListener("keydown", (event) => {
    const tr = event.target.closest("tr");
    const node = tree.nodes[tr.dataset.id];
    const move = { ArrowDown: tr.nextElementSibling, ArrowUp: tr.previousElementSibling }[event.key];
    if (move) move.focus();
    else if (event.key === "ArrowRight" && node.children.length && !open.has(node.id)) toggle(node);
    else if (event.key === "ArrowLeft" && open.has(node.id)) toggle(node);
    else if (event.key === "ArrowLeft" && node.parent >= 0) body.querySelector(`[data-id="${node.parent}"]`).focus();
    else if (event.key === "Enter" && event.target === tr) choose(node.fn.id);
    else return;
    event.preventDefault();
  });
  const all = el("button", { type: "button", onclick() { tree.nodes.forEach((node) => open.add(node.id)); draw(); } }, "Open all");
  const none = el("button", { type: "button", onclick() { open.clear(); draw(); } }, "Close all");
  section.append(el("div", { class: "tools" }, all, none),
    el("div", { class: "panel" }, el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head)), body))));
  on("search", draw);
  draw();
}
