// SPDX-License-Identifier: Apache-2.0 OR MIT
// Durations over time, their distribution, and how processes or threads share the work.

const heatMaps = new Map(data.heat.functions);
const histograms = new Map(data.histograms.map(([id, flat]) => {
  const buckets = [];
  for (let at = 0; at < flat.length; at += 2) buckets.push([flat[at], flat[at + 1]]);
  return [id, buckets];
}));

/** Where a step of a heat map begins: two steps for each power of two. */
const stepBegin = (step) => (step < 2 ? step / 2 : step % 2 ? 1.5 * 2 ** ((step - 1) / 2 - 1) : 2 ** (step / 2 - 1));

/** The step of a duration, with how far into the step it is. */
function stepOf(duration) {
  const bits = Math.floor(Math.log2(duration)) + 1;
  return 2 * bits + 2 * (duration / 2 ** (bits - 1) - 1);
}

/** Durations over time: the darker, the more calls. */
function heatMap(map, height = 260) {
  const cells = [];
  for (let at = 0; at < map.cells.length; at += 3) cells.push([map.cells[at], map.cells[at + 1], map.cells[at + 2]]);
  if (cells.length === 0) return el("p", { class: "empty" }, "No timed call to draw.");
  const canvas = el("canvas", { role: "img", "aria-label": "Durations over time" });
  const box = el("div", {}, canvas);
  const [LEFT, BOTTOM] = [64, 22];
  const rows = cells.map((cell) => cell[1]);
  const [low, high] = [Math.min(...rows) - 1, Math.max(...rows) + 2];
  const slices = Math.max(...cells.map((cell) => cell[0])) + 1;
  const begin = data.from_ns;
  const length = Math.max(slices * map.width, Math.min(data.length_ns, map.slices * map.width));
  const most = Math.log1p(cells.reduce((most, cell) => Math.max(most, cell[2]), 0));
  let geometry = null;

  const draw = eachFrame(() => {
    if (!canvas.isConnected) return;
    const { context, width } = prepared(canvas, height);
    const x = (ns) => LEFT + ns / length * (width - LEFT);
    const y = (step) => height - BOTTOM - (step - low) / (high - low) * (height - BOTTOM - 6);
    geometry = { width, x, y };
    context.font = "11.5px system-ui, sans-serif";
    const { step, marks } = steps(begin, begin + length, Math.max(2, (width - LEFT) / 130));
    context.fillStyle = css("--soft");
    marks.forEach((mark) => { if (x(mark - begin) < width - 50) context.fillText(instant(mark, step), x(mark - begin) + 2, height - 8); });
    for (let duration = 1; stepOf(duration) < high; duration *= 10) {
      const row = stepOf(duration);
      if (row < low + 0.5) continue;
      context.fillStyle = css("--soft");
      context.textAlign = "right";
      context.fillText(time(duration), LEFT - 8, y(row));
      context.fillStyle = css("--line");
      context.fillRect(LEFT, Math.round(y(row)), width - LEFT, 1);
    }
    context.textAlign = "left";
    const tall = (height - BOTTOM - 6) / (high - low);
    for (const [slice, row, calls] of cells) {
      const left = x(slice * map.width);
      context.fillStyle = `color-mix(in oklab, ${css("--heat-to")} ${(18 + 82 * Math.log1p(calls) / most).toFixed(0)}%, ${css("--heat-from")})`;
      context.fillRect(left, y(row + 1) + 0.5, Math.max(x((slice + 1) * map.width) - left - 0.5, 1), Math.max(tall - 0.5, 1));
    }
  });
  canvas.addEventListener("mousemove", (event) => {
    if (!geometry) return;
    const { left, top } = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const cell = cells.find(([slice, row]) => x >= geometry.x(slice * map.width) && x < geometry.x((slice + 1) * map.width) && y <= geometry.y(row) && y > geometry.y(row + 1));
    if (!cell) return tip.hide();
    const upper = cell[1] === 0 ? "" : ` to ${time(stepBegin(cell[1] + 1))}`;
    tip.show(event, `${count(cell[2])} calls`, `of ${time(stepBegin(cell[1]))}${upper}`, `ended ${instant(begin + cell[0] * map.width, map.width)} to ${instant(begin + (cell[0] + 1) * map.width, map.width)}`);
  });
  canvas.addEventListener("mouseleave", tip.hide);
  on("theme", draw);
  on("resize", draw);
  draw();
  return box;
}

/** Calls by steps of their duration. Steps without a call have a bar of no length; many of them in a row are one mark. */
function histogram(buckets) {
  if (!buckets || buckets.length === 0) return el("p", { class: "empty" }, "No timed call.");
  const total = buckets.reduce((sum, [, calls]) => sum + calls, 0);
  const most = buckets.reduce((most, [, calls]) => Math.max(most, calls), 0);
  const bars = el("div", { class: "bars" });
  const isSkipped = buckets.map(() => false);
  for (let from = 0, to = 0; from < buckets.length; from = to + 1) {
    for (to = from; to < buckets.length && buckets[to][1] === 0; to++);
    if (to - from > 3) isSkipped.fill(true, from, to);
  }
  buckets.forEach(([from, number], at) => {
    const bar = el("i", { hidden: isSkipped[at] });
    bar.style.width = `${(100 * number / most).toFixed(2)}%`;
    if (number === 0) bar.style.visibility = "hidden";
    if (isSkipped[at] && !isSkipped[at - 1]) bars.append(el("span", {}, "⋮"), el("span", {}), el("span", {}));
    bars.append(el("span", { hidden: isSkipped[at] }, from === 0 ? "0 ns" : `from ${time(from)}`), bar,
      el("span", { hidden: isSkipped[at], "data-from": from, "data-value": number, title: percent(number / total, 2) }, count(number)));
  });
  return bars;
}

function drawLatency() {
  const section = byId("latency");
  if (data.heat.all.cells.length === 0) {
    if (data.info.calls === 0) return section.remove();
    const why = data.folded ? "The calls were summed up while they were recorded: durations over time are not known. The distribution of each function is in its details." : "No timed call was recorded.";
    section.append(el("p", { class: "empty" }, why));
    return;
  }
  const partly = data.folded ? " Only calls with a record of their own are here: those that were slow enough, or whose function was not folded." : "";
  hint("latency", "Each column is a slice of time, each row a step of durations, both of calls that ended then: the stronger the colour, the more calls.", partly);
  const place = el("div", { class: "panel" });
  place.style.padding = "14px 16px 8px";
  const select = el("select", { "aria-label": "Function", onchange() { fill(Number(select.value)); } }, el("option", { value: -1 }, "all functions"),
    [...heatMaps.keys()].map((id) => el("option", { value: id }, functions[id].short)));
  const fill = (id) => place.replaceChildren(heatMap(id < 0 ? data.heat.all : heatMaps.get(id)));
  section.append(el("div", { class: "tools" }, select, el("span", { class: "soft" }, `${count(heatMaps.size)} functions with most time have a map of their own`)), place);
  fill(-1);
  on("choose", () => { if (heatMaps.has(chosen)) { select.value = chosen; fill(chosen); } });
}

// A table of cells [row, column, count, amount or null], the stronger coloured the larger its amount is.
function matrix(rows, columns, cells, shown, about) {
  const most = cells.reduce((most, cell) => Math.max(most, cell[3]), 0);
  const values = new Map(cells.map((cell) => [`${cell[0]},${cell[1]}`, cell]));
  const head = columns.map(([name, title]) => el("th", { scope: "col", title }, name));
  const body = rows.map((name, row) => el("tr", {}, el("th", { class: "name", scope: "row" }, name), columns.map((_, column) => {
    const cell = values.get(`${row},${column}`);
    const td = el("td", { title: about(row, column, cell) });
    if (!cell || cell[3] === null) { td.append(el("span", { class: "unknown" }, cell ? UNKNOWN : "·")); return td; }
    td.append(columns.length > 16 ? "" : shown(cell[3]).toLocaleString("en-US", { maximumSignificantDigits: 3 }));
    const part = most > 0 ? Math.sqrt(cell[3] / most) : 0;
    td.style.background = `color-mix(in oklab, var(--heat-to) ${(78 * part).toFixed(0)}%, var(--heat-from))`;
    if (part > 0.55) td.style.color = "var(--panel)";
    return td;
  })));
  return el("div", { class: "wide" }, el("table", { class: "matrix" }, el("thead", {}, el("tr", {}, el("th", { class: "name" }), head)), el("tbody", {}, body)));
}

/** Operations per second over operations per byte, both logarithmic, below what the machine can do. */
function drawRoofline() {
  const section = byId("roofline");
  const { roofline: points, peaks } = data;
  if (points.length === 0 || !peaks) return section.remove();
  const roof = (rates, intensity) => Math.min(peaks.gigaflops[rates], peaks.gigabytes[rates] * intensity);
  hint("roofline", `Each function by its operations per byte and per second, below the peaks of ${peaks.host}: of one CPU and of all ${peaks.cpus}.`,
    ` Operations: ${peaks.operations}. Memory: ${peaks.bytes}. Bytes are what a call reads and writes at least, so a function may be farther left.`);
  const canvas = el("canvas", { role: "img", "aria-label": "Roofline" });
  const [LEFT, BOTTOM, height] = [64, 22, 300];
  const exponents = (values) => [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
  const [left, right] = exponents([...points.map((point) => point[2]), peaks.gigaflops.all / peaks.gigabytes.one, 0.1]);
  const [low, high] = exponents([...points.map((point) => point[1]), peaks.gigaflops.all, peaks.gigaflops.one / 10]);
  const draw = eachFrame(() => {
    if (!canvas.isConnected) return;
    const { context, width } = prepared(canvas, height);
    const x = (intensity) => LEFT + (Math.log10(intensity) - left) / Math.max(right - left, 1) * (width - LEFT - 8);
    const y = (speed) => height - BOTTOM - (Math.log10(speed) - low) / Math.max(high - low, 1) * (height - BOTTOM - 8);
    context.font = "11.5px system-ui, sans-serif";
    context.fillStyle = css("--soft");
    for (let exponent = left; exponent <= right; exponent += 1) context.fillText(`${10 ** exponent} flops/byte`, x(10 ** exponent) + 2, height - 8);
    for (let exponent = low; exponent <= high; exponent += 1) context.fillText(`${10 ** exponent} GF/s`, 4, y(10 ** exponent));
    context.strokeStyle = css("--soft");
    for (const rates of ["one", "all"]) {
      context.beginPath();
      for (let step = 0; step <= 200; step += 1) {
        const intensity = 10 ** (left + (right - left) * step / 200);
        context.lineTo(x(intensity), y(Math.max(roof(rates, intensity), 10 ** low)));
      }
      context.stroke();
    }
    for (const [id, speed, intensity] of points) {
      context.fillStyle = css("--heat-to");
      context.beginPath();
      context.arc(x(intensity), y(speed), 4, 0, 2 * Math.PI);
      context.fill();
      context.fillText(functions[id].short, x(intensity) + 7, y(speed) + 4);
    }
  });
  const decimals = (number) => number.toLocaleString("en-US", { maximumSignificantDigits: 3 });
  const rows = points.map(([id, speed, intensity]) => [functionName(functions[id]), decimals(speed), decimals(intensity), `${decimals(100 * speed / roof("one", intensity))} %`, `${decimals(100 * speed / roof("all", intensity))} %`]);
  const head = ["function", "GF/s", "flops/byte", "of one CPU's peak", "of all CPUs' peak"];
  section.append(el("div", { class: "panel" }, canvas), el("div", { class: "wide" }, el("table", { "data-table": "roofline" },
    el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell))))))));
  on("theme", draw);
  on("resize", draw);
  draw();
}

function drawMessages() {
  const section = byId("messages");
  const { ranks, shared, cells } = data.messages;
  if (cells.length === 0) return section.remove();
  const rank = (place) => (shared === 1 ? `${place}` : `${place * shared}–${Math.min((place + 1) * shared, ranks) - 1}`);
  const all = Array.from({ length: Math.ceil(ranks / shared) }, (_, place) => rank(place));
  hint("messages", "Bytes that a rank (row) sends to another (column), of messages of which both ends are on record.");
  section.append(matrix(all.map((name) => `rank ${name}`), all.map((name) => [name, `rank ${name}`]), cells, (bytes) => bytes,
    (row, column, cell) => (cell ? `rank ${all[row]} to ${all[column]}: ${cell[3] === null ? "unknown bytes" : `${count(cell[3])} bytes`} in ${count(cell[2])} messages` : "no message")));
}

function drawBalance() {
  const section = byId("balance");
  const { by, columns, cells, functions: rows } = data.matrix;
  const tables = [["Processes", data.processes], ["Threads", data.threads]].filter(([, table]) => table.rows.length > 0);
  if (tables.length === 0) return section.remove();
  const balance = data.notes.find((note) => note.startsWith("balance: "));
  hint("balance", balance ? `${balance[0].toUpperCase()}${balance.slice(1)}.` : "All calls were made by one thread.");
  if (columns.length > 1) {
    const unit = unitFor(cells.reduce((most, cell) => Math.max(most, cell[3]), 0));
    const title = (id) => (by === "process" && data.locations[id] ? processName(data.locations[id]) : id === null ? "others" : threadName(id));
    section.append(el("h3", {}, `Exclusive time of functions by ${by}, in ${unit[0]}`), matrix(
      rows.map((name) => functionName(functions[name])), columns.map((id) => [short(title(id)), title(id)]), cells, (value) => value / unit[1],
      (row, column, cell) => (cell ? `${functions[rows[row]].name}, ${title(columns[column])}: ${time(cell[3])} in ${count(cell[2])} calls` : "no call")));
  }
  for (const [title, table] of tables) {
    const shown = table.columns.map((column, place) => ({
      key: column.key, title: column.title, kind: column.kind === "name" ? "text" : column.kind, hidden: !column.shown,
      bar: column.key === "exclusive_ns", group: GROUPS[column.key], value: (row) => row[place],
      // Numbers of processes and threads are names, not amounts.
      render: ["pid", "tid", "rank"].includes(column.key) ? (row) => (row[place] === null ? UNKNOWN : String(row[place])) : null,
    }));
    const labels = shown.filter((column) => ["host", "rank", "pid", "tid", "thread", "process"].includes(column.key));
    const figures = shown.filter((column) => !labels.includes(column));
    const element = sortedTable([...labels.slice(-1), ...labels.slice(0, -1), ...figures], table.rows, { sort: "exclusive_ns", most: 40 }).element;
    element.dataset.table = title.toLowerCase();
    section.append(el("h3", {}, title + leftOut(table.left_out, "rows")), element);
  }
}

const processName = (thread) => `${thread.rank === null || thread.rank === undefined ? "" : `rank ${thread.rank} `}${thread.program || "process"} ${thread.pid}`;
const short = (name) => (name.length > 18 ? `${name.slice(0, 8)}…${name.slice(-8)}` : name);
