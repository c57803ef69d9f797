// SPDX-License-Identifier: Apache-2.0 OR MIT
// How functions were probed, what is missing, and how the recording was made.

const ENTRIES = {
  emulated: "emulated by the kernel", "executed by BPF": "executed by a BPF program", stub: "by a stub", "single-stepped": "single-stepped by the kernel: costs several times as much",
};
const EXITS = {
  "return-site": "probes where it returns to", "entry-only": "not observed: calls are not timed",
};

const column = (key, title, kind, value, render) => ({ key, title, kind, value, render });

function drawPlan() {
  const section = byId("plan");
  const { kinds, probed, functions: total, refused, reasons, refusals } = data.plan;
  hint("plan", `${count(total)} functions had probes, ${count(data.called)} of them were called or lost calls. `,
    refusals ? `${count(refusals)} functions were refused: a probe there would not be sound.` : "No function was refused.");
  if (kinds.length) {
    section.append(sortedTable([
      column("library", "library", "name", (row) => (row[0] === null ? "unknown" : libraries[row[0]].name), (row) => [row[0] === null ? "" : swatch(row[0]), row[0] === null ? "unknown" : libraries[row[0]].name]),
      column("entry", "probed instruction at the entry", "text", (row) => ENTRIES[row[1]] || row[1]),
      column("exit", "how returns are detected", "text", (row) => EXITS[row[2]] || row[2]),
      column("functions", "functions", "count", (row) => row[3]),
    ], kinds, { sort: "functions", most: 30 }).element);
  }
  if (reasons.length) {
    section.append(el("h3", {}, "Refused, by reason"), sortedTable([
      column("reason", "reason", "name", (row) => row[0]), column("functions", "functions", "count", (row) => row[1]),
    ], reasons, { sort: "functions", most: 20 }).element);
    section.append(el("h3", {}, "Refused functions" + leftOut(refusals - refused.length, "refused functions")), sortedTable([
      column("function", "function", "name", (row) => row[0]), column("library", "library", "text", (row) => row[1]), column("reason", "reason", "long", (row) => row[2]),
    ], refused, { sort: "library", descending: false, most: 10, filter: (row) => !search.text || row[0].toLowerCase().includes(search.text) }).element);
  }
  if (probed.length) {
    const rows = probed.map((id) => functions[id]);
    const table = sortedTable([
      { ...column("function", "function", "name", (fn) => fn.name, (fn) => functionName(fn)) },
      column("entry", "entry", "text", (fn) => fn.entry || ""), column("exit", "return", "text", (fn) => fn.exit || ""),
      column("calls", "calls", "count", (fn) => (figures.rows.has(fn.id) ? figures.of(fn.id, "calls") : data.functions.left_out ? null : 0)),
    ], rows, { sort: "calls", most: 15, id: (fn) => fn.id, onrow: (fn) => choose(fn.id), filter: (fn) => !search.found || search.found.has(fn.id) });
    section.append(el("h3", {}, "Probed functions" + leftOut(total - probed.length, "probed functions")), table.element);
    on("search", table.draw);
  }
}

function drawMissing() {
  const section = byId("missing");
  const { lost, untimed, events, left_out } = data.incidents;
  section.append(el("ul", { class: "verdicts" }, data.notes.map((note) => el("li", {}, note))));
  const reasons = (title, rows, table) => {
    if (rows.length === 0) return;
    const element = sortedTable([
      column("reason", "reason", "name", (row) => row[0]),
      column("function", "function", "text", (row) => (row[1] === null ? "" : functions[row[1]].name), (row) => (row[1] === null ? el("span", { class: "unknown" }, "not known") : functionLink(functions[row[1]]))),
      column("calls", "calls", "count", (row) => row[2]),
    ], rows, { sort: "calls", most: 15 }).element;
    element.dataset.table = table;
    section.append(el("h3", {}, title), element);
  };
  reasons("Lost, by function", lost, "lost");
  reasons("Not timed, by function", untimed, "untimed");
  if (events.length) {
    const unit = unitFor(events[events.length - 1][0]);
    section.append(el("h3", {}, "Events" + leftOut(left_out, "events")), sortedTable([
      { ...column("time", "time", "time", (row) => row[0]), unit },
      column("event", "event", "text", (row) => row[2].replaceAll("_", " ")),
      column("pid", "process", "text", (row) => (row[1] === null ? "" : String(row[1]))),
      column("detail", "detail", "long", (row) => described(row)),
    ], events, { sort: "time", descending: false, most: 15 }).element);
  }
}

/** What an event says beside its kind: its members as they are in the trace. */
function described([, , kind, members]) {
  if (kind === "blind_window") return `${members.library}: its calls may be missing before`;
  return Object.entries(members).filter(([name]) => name !== "event" && name !== "since").map(([name, value]) => `${name} ${value}`).join(", ");
}

function drawRecording() {
  const section = byId("recording");
  const { info } = data;
  const list = (entries) => el("dl", {}, entries.filter(([, value]) => value !== null && value !== undefined && value !== "").flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]));
  const shown = info.recordings.slice(0, 16).map((recording) => list([
    ["command", el("code", {}, recording.command_line.join(" "))],
    ["rank", recording.rank === null ? null : String(recording.rank)],
    ["began", new Date(recording.begin_realtime_ns / 1e6).toISOString().replace("T", " ").replace(/\..*/, " UTC")],
    ["status", recording.status],
    ["host", `${recording.host}, Linux ${recording.kernel}, ${count(recording.cpus)} CPUs`],
    ["recorded by", `rtrace ${recording.rtrace_version}, ${recording.mechanism}`],
    ["budget", recording.budget === null ? null : `${recording.budget} % of the programs' CPU time`],
    ["trace", el("code", {}, recording.directory)],
  ]));
  section.append(el("div", { class: "columns" }, shown));
  if (info.recordings.length > shown.length) section.append(el("p", { class: "soft" }, `and ${count(info.recordings.length - shown.length)} more recordings`));
  section.append(list([
    ["length", time(info.duration_ns)],
    ["size", `${count(info.bytes)} bytes${info.bytes_per_call === null ? "" : `, ${info.bytes_per_call.toFixed(1)} per call`}`],
  ]));
  section.append(el("h3", {}, "Libraries"), sortedTable([
    column("path", "library", "name", (row) => row.path), column("build", "build id", "text", (row) => row.build_id || "none", (row) => el("code", {}, row.build_id || "none")),
    column("functions", "functions", "count", (row) => row.regions), column("stubs", "stubs", "count", (row) => row.stubs),
  ], libraries, { sort: "functions", most: 20 }).element);
  section.append(el("h3", {}, "Processes"), sortedTable([
    column("command", "command", "name", (row) => row.command_line.join(" "), (row) => el("code", {}, row.command_line.join(" ").slice(0, 400))),
    column("pid", "pid", "text", (row) => row.pid, (row) => String(row.pid)), column("threads", "threads with calls", "count", (row) => row.threads),
    column("exit", "exit code", "count", (row) => row.exit_code),
  ], info.processes, { sort: "threads", most: 12 }).element);
  if (data.costs.length) {
    section.append(el("h3", {}, "What tracing a call costs here, measured before the recording"), sortedTable([
      column("entry", "entry", "name", (row) => ENTRIES[row[1]] || row[1]), column("exit", "return", "text", (row) => EXITS[row[2]] || row[2]), column("host", "host", "text", (row) => row[0]),
      column("inner", "in the call's own time", "time", (row) => row[3]), column("whole", "in all", "time", (row) => row[4]), column("spread", "±", "time", (row) => row[5]),
    ], data.costs, { sort: "whole", descending: false, most: 12 }).element);
  }
}
