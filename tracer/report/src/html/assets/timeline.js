// SPDX-License-Identifier: Apache-2.0 OR MIT
// A lane per thread: how busy it was, and below that the single calls that the page holds.

const calls = (() => {
  const all = [];
  const { rows } = data.calls;
  let [lane, start] = [-1, 0];
  for (let at = 0; at < rows.length; at += 6) {
    start = rows[at] === lane ? start + rows[at + 1] : rows[at + 1];
    lane = rows[at];
    all.push({ lane, start, fn: functions[rows[at + 2]], duration: rows[at + 3], depth: rows[at + 4], ending: rows[at + 5] });
  }
  return all;
})();
const ENDINGS = ["returned", "unwound", "still open at the end", "not timed: its end was not seen"];

/** What a thread is called: its rank, program, name and number, as far as they tell it from others. */
function threadName(id) {
  const thread = data.locations[id];
  if (!thread) return "other threads";
  const rank = thread.rank === null || thread.rank === undefined ? "" : `rank ${thread.rank} `;
  const host = thread.host && new Set(Object.values(data.locations).map((thread) => thread.host)).size > 1 ? `${thread.host} ` : "";
  const isAlike = !thread.program || thread.program.startsWith(thread.name);
  return `${host}${rank}${thread.name} ${thread.tid}${isAlike ? "" : ` of ${thread.program}`}`;
}

/** Round steps of an axis: at most so many from `from` to `to`. */
function steps(from, to, most) {
  const rough = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) || rough;
  const marks = [];
  for (let mark = Math.ceil(from / step) * step; mark <= to; mark += step) marks.push(mark);
  return { step, marks };
}

/** An instant on an axis: as many digits as its steps need. */
function instant(ns, step) {
  const [unit, scale] = UNITS.filter(([, scale]) => Math.max(step, 1) * 1000 > scale).pop() || UNITS[0];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / scale)));
  return `${(ns / scale).toFixed(Math.min(digits, 6))} ${unit}`;
}

function drawTimeline() {
  const section = byId("timeline");
  const { width: slice, slices, lanes } = data.lanes;
  if (lanes.length === 0) {
    if (data.info.calls === 0) return section.remove();
    const why = data.folded ? "The calls were summed up while they were recorded, so when they were is not known. Record without --mode profile for a timeline." : data.is_part ? "No call ended in this part of the time." : "No call was recorded.";
    section.append(el("p", { class: "empty" }, why));
    return;
  }
  const held = data.calls.all ? `All ${count(calls.length)} calls are on this page.`
    : `The page holds ${count(calls.length)} of ${count(data.calls.seen)} calls: the slowest, the slowest of each function, and a sample of all times. The others are in the shaded density alone.`;
  const withoutValues = data.calls.values && data.calls.values.most
    ? ` Arguments and results are not here, as there are more than ${count(data.calls.values.most)} calls: rtrace report --by arg:NAME shows them.` : "";
  hint("timeline", "Shaded: the part of the time that a thread was inside traced calls. ", held, withoutValues, " Drag to zoom, Shift and wheel to move, double click to reset; with the graph focused, arrow keys move, + and − zoom.");

  const [LABEL, DENSITY, CALL, AXIS, MOST_DEEP] = [190, 30, 14, 24, 40];
  const begin = data.from_ns;
  const end = begin + Math.max(data.length_ns, lastSlice() * slice, 1);
  const view = { from: begin, to: end };
  const state = lanes.map((lane, place) => ({ lane, place, calls: calls.filter((call) => call.lane === place), open: lanes.length <= 4 }));
  const byBusy = state.slice().sort((a, b) => b.lane.busy.reduce((x, y) => x + y, 0) - a.lane.busy.reduce((x, y) => x + y, 0));
  byBusy.slice(0, 3).forEach((lane) => { lane.open = true; });
  for (const lane of state) {
    lane.deepest = lane.calls.reduce((most, call) => Math.max(most, call.depth), -1);
    lane.longest = lane.calls.reduce((most, call) => Math.max(most, call.duration || 0), 0);
  }

  function lastSlice() {
    let last = 0;
    lanes.forEach((lane) => lane.calls.forEach((calls, at) => { if (calls > 0 || lane.busy[at] > 0) last = Math.max(last, at + 1); }));
    return last;
  }

  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": "Timeline; arrow keys move, plus and minus zoom" });
  const status = el("div", { class: "status" });
  let drawn = [];
  let dragged = null;

  const sliceOf = (ns) => Math.floor((ns - begin) / slice);
  const rowsOf = (lane) => (lane.open ? Math.min(lane.deepest + 1, MOST_DEEP) : 0);
  const heightOf = (lane) => DENSITY + rowsOf(lane) * CALL + (lane.open && lane.deepest + 1 > MOST_DEEP ? CALL : 0) + 10;

  const draw = eachFrame(() => {
    let height = AXIS;
    for (const lane of state) { lane.top = height; height += heightOf(lane); }
    const { context, width } = prepared(canvas, height);
    const plot = width - LABEL;
    const x = (ns) => LABEL + (ns - view.from) / (view.to - view.from) * plot;
    context.font = "12px system-ui, sans-serif";
    drawn = [];

    const { step, marks } = steps(view.from, view.to, Math.max(2, plot / 130));
    for (const mark of marks) {
      context.fillStyle = css("--line");
      context.fillRect(Math.round(x(mark)), AXIS - 6, 1, height);
      context.fillStyle = css("--soft");
      const label = instant(mark, step);
      if (x(mark) + 4 + context.measureText(label).width < width) context.fillText(label, x(mark) + 4, 10);
    }
    for (const lane of state) {
      drawDensity(context, lane, x, plot);
      if (lane.open) drawCalls(context, lane, x, width);
      context.fillStyle = css("--panel");
      context.fillRect(0, lane.top - 2, LABEL - 1, heightOf(lane));
      context.fillStyle = css("--ink");
      const title = lane.lane.threads > 1 ? `${lane.lane.threads} other threads` : threadName(lane.lane.location);
      context.fillText(`${lane.open ? "▾" : "▸"} ` + fitting(context, title, LABEL - 34), 8, lane.top + DENSITY / 2);
      context.fillStyle = css("--line");
      context.fillRect(0, lane.top + heightOf(lane) - 4, width, 1);
    }
    if (dragged && Math.abs(dragged.to - dragged.from) > 2) {
      context.fillStyle = css("--accent");
      context.globalAlpha = 0.18;
      context.fillRect(Math.min(dragged.from, dragged.to), AXIS, Math.abs(dragged.to - dragged.from), height);
      context.globalAlpha = 1;
    }
    const isAll = view.from === begin && view.to === end;
    status.textContent = isAll ? `${time(end - begin)} in all` : `${instant(view.from, step / 10)} to ${instant(view.to, step / 10)}: ${time(view.to - view.from)} of ${time(end - begin)}`;
    address.set("from", isAll ? null : Math.round(view.from));
    address.set("to", isAll ? null : Math.round(view.to));
  });

  function drawDensity(context, lane, x, plot) {
    const { busy, calls } = lane.lane;
    const bottom = lane.top + DENSITY - 4;
    const full = DENSITY - 8;
    const [first, last] = [Math.max(0, sliceOf(view.from)), Math.min(slices - 1, sliceOf(view.to))];
    const most = 1000 * Math.max(1, lane.lane.threads);
    for (let at = first; at <= last; at++) {
      if (busy[at] === 0 && calls[at] === 0) continue;
      const left = Math.max(x(begin + at * slice), LABEL);
      const wide = Math.min(x(begin + (at + 1) * slice), LABEL + plot) - left;
      const tall = Math.max(full * Math.min(busy[at] / most, 1), 1);
      context.globalAlpha = 0.55;
      context.fillStyle = css("--accent");
      context.fillRect(left, bottom - tall, Math.max(wide, 0.6), tall);
    }
    context.globalAlpha = 1;
  }

  function drawCalls(context, lane, x, width) {
    const top = lane.top + DENSITY;
    // Of calls that share a pixel one is drawn.
    const last = new Map();
    let deeper = 0;
    for (const call of lane.calls) {
      const until = call.start + (call.duration || 0);
      if (until < view.from || call.start > view.to) continue;
      if (call.depth >= MOST_DEEP) { deeper++; continue; }
      const left = Math.max(x(call.start), LABEL);
      const right = Math.min(x(until), width);
      const wide = Math.max(right - left, 1);
      const pixel = Math.round(left);
      if (wide < 1.5 && last.get(call.depth) === pixel) continue;
      last.set(call.depth, pixel);
      const y = top + call.depth * CALL;
      const isDim = search.found && !search.found.has(call.fn.id);
      context.globalAlpha = isDim ? 0.2 : 1;
      context.fillStyle = search.found && !isDim ? css("--match") : boxColour(call.fn);
      if (call.duration === null) context.fillRect(left, y + 3, 1, CALL - 6);
      else context.fillRect(left, y, wide > 3 ? wide - 0.5 : wide, CALL - 1);
      if (wide > 30) {
        context.fillStyle = search.found && !isDim ? "#fff" : css("--box-ink");
        context.font = "11px system-ui, sans-serif";
        context.fillText(fitting(context, call.fn.short, wide - 8), left + 4, y + CALL / 2);
        context.font = "12px system-ui, sans-serif";
      }
      context.globalAlpha = 1;
      drawn.push({ call, left: left - 1, right: Math.max(right, left + 2), y });
    }
    if (lane.deepest + 1 > MOST_DEEP) {
      context.fillStyle = css("--soft");
      context.fillText(`${count(deeper)} calls here are nested deeper than ${MOST_DEEP}`, LABEL + 4, top + MOST_DEEP * CALL + CALL / 2);
    }
  }

  function show(from, to) {
    const length = Math.min(Math.max(to - from, 20), end - begin);
    view.from = Math.min(Math.max(from, begin), end - length);
    view.to = view.from + length;
    draw();
  }

  const ns = (clientX) => {
    const { left, width } = canvas.getBoundingClientRect();
    return view.from + (clientX - left - LABEL) / (width - LABEL) * (view.to - view.from);
  };
  function zoom(factor, around) {
    show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  }

  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoom(1.002 ** event.deltaY, ns(event.clientX));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (event.deltaX || event.deltaY) / 800 * (view.to - view.from);
      show(view.from + by, view.to + by);
    } else return;
    event.preventDefault();
  }, { passive: false });
  const at = (event) => { const { left, top } = canvas.getBoundingClientRect(); return [event.clientX - left, event.clientY - top]; };
  const callAt = ([x, y]) => drawn.findLast((box) => x >= box.left && x <= box.right && y >= box.y && y < box.y + CALL);
  const laneAt = ([, y]) => state.find((lane) => y >= lane.top && y < lane.top + heightOf(lane));
  canvas.addEventListener("pointerdown", (event) => {
    const [x] = at(event);
    if (x < LABEL || event.button !== 0) return;
    dragged = { from: x, to: x };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const place = at(event);
    if (dragged) { dragged.to = Math.max(place[0], LABEL); tip.hide(); return draw(); }
    const box = callAt(place);
    const lane = laneAt(place);
    canvas.style.cursor = place[0] < LABEL ? "pointer" : box ? "pointer" : "crosshair";
    if (box) {
      const { call } = box;
      tip.show(event, call.fn.name, libraryName(call.fn), call.duration === null ? UNKNOWN : time(call.duration), `began at ${moment(call.start)}`, ENDINGS[call.ending], metricText(call.fn), call.values ? withNames(call) : "");
    } else if (lane && place[0] >= LABEL && place[1] < lane.top + DENSITY) {
      const slot = Math.min(slices - 1, Math.max(0, sliceOf(ns(event.clientX))));
      const busy = lane.lane.busy[slot] / 1000;
      tip.show(event, lane.lane.threads > 1 ? `${lane.lane.threads} other threads` : threadName(lane.lane.location),
        `${count(lane.lane.calls[slot])} calls began within ${time(slice)}`,
        lane.lane.threads > 1 ? `${busy.toFixed(2)} threads inside traced calls` : `${percent(busy, 0)} inside traced calls`);
    } else tip.hide();
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x, y] = at(event);
    const was = dragged;
    dragged = null;
    if (was && Math.abs(was.to - was.from) > 4) {
      const { left } = canvas.getBoundingClientRect();
      return show(ns(left + Math.min(was.from, was.to)), ns(left + Math.max(was.from, was.to)));
    }
    const box = callAt([x, y]);
    const lane = laneAt([x, y]);
    if (x < LABEL && lane) { lane.open = !lane.open; draw(); }
    else if (box) choose(box.call.fn.id);
    else draw();
  });
  canvas.addEventListener("mouseleave", tip.hide);
  canvas.addEventListener("dblclick", () => show(begin, end));
  canvas.addEventListener("keydown", (event) => {
    const length = view.to - view.from;
    const by = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    if (by) show(view.from + by * length, view.to + by * length);
    else if (event.key === "+" || event.key === "=") zoom(0.6, (view.from + view.to) / 2);
    else if (event.key === "-") zoom(1 / 0.6, (view.from + view.to) / 2);
    else return;
    event.preventDefault();
  });

  const reset = el("button", { type: "button", onclick: () => show(begin, end) }, "Reset zoom");
  const openAll = el("button", { type: "button", onclick() { const open = !state.every((lane) => lane.open); state.forEach((lane) => { lane.open = open; }); draw(); } }, "Open or close all");
  section.append(el("div", { class: "tools" }, reset, state.length > 1 ? openAll : null, el("span", { class: "gap" }), colourChoice(), colourKeys()),
    el("div", { class: "panel" }, el("div", { class: "scroll" }, canvas)), status);

  on("show call", (call) => {
    state[call.lane].open = true;
    const around = Math.max((call.duration || 0) * 1.5, 1000);
    show(call.start - around / 2, call.start + (call.duration || 0) + around / 2);
    section.scrollIntoView();
  });
  on("search", draw);
  on("theme", draw);
  on("colours", draw);
  on("resize", draw);
  on("reset", () => show(begin, end));
  const [from, to] = ["from", "to"].map((name) => Number(address.get(name)));
  if (to > from) show(from, to);
  else draw();
}
