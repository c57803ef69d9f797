// SPDX-License-Identifier: Apache-2.0 OR MIT
// The head of the page, its keys and themes; then every part is drawn.

function drawSummary() {
  const { info, verdicts, title } = data;
  const [program, rest] = title.split(/ on (?=[^ ]* \(Linux )/);
  byId("program").textContent = program;
  byId("program").title = title;
  const threads = data.is_part ? data.lanes.lanes.reduce((sum, lane) => sum + lane.threads, 0) : info.threads;
  const began = new Date(data.begin_ns / 1e6).toISOString().replace("T", " ").replace(/\..*/, " UTC");
  const tiles = [
    [count(data.is_part ? data.calls.seen : info.calls), "calls"], [count(data.called), "functions called"], [count(threads), threads === 1 ? "thread" : "threads"],
    [time(data.total_ns), "in traced calls"], [time(info.duration_ns), "recorded"],
  ];
  if (data.is_part) tiles.push([time(data.length_ns), `of it shown, from ${time(data.from_ns)} on`]);
  if (info.recordings.length > 1) tiles.push([count(info.recordings.length), "recordings"]);
  byId("summary").append(
    el("h1", {}, program), el("p", { class: "soft" }, rest ? `on ${rest}` : "", `, ${began}`),
    el("div", { class: "tiles" }, tiles.map(([value, label]) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, label)))),
    el("ul", { class: "verdicts" }, verdicts.map(([tone, text]) => el("li", { class: tone }, text))));
}

function drawNav() {
  for (const section of document.querySelectorAll("main section")) {
    const heading = section.querySelector("h2");
    const go = (event) => { event.preventDefault(); section.scrollIntoView(); };
    if (heading) byId("nav").append(el("a", { href: `#${section.id}`, onclick: go }, section.dataset.nav || heading.textContent));
  }
}

// ---- Light and dark ----

const THEMES = { system: "◐", light: "○", dark: "●" };
const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = "system";
let isPrinting = false;

function applyTheme() {
  const isDark = !isPrinting && (theme === "dark" || (theme === "system" && dark.matches));
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  byId("theme").textContent = THEMES[theme];
  byId("theme").setAttribute("aria-label", `Colours: ${theme}`);
  style = null;
  tell("theme");
}

function startThemes() {
  try { theme = localStorage.getItem("rtrace-theme") || "system"; } catch { /* a viewer that keeps nothing */ }
  if (!THEMES[theme]) theme = "system";
  byId("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    try { localStorage.setItem("rtrace-theme", theme); } catch { /* as above */ }
    applyTheme();
  });
  dark.addEventListener("change", applyTheme);
  addEventListener("beforeprint", () => { isPrinting = true; applyTheme(); });
  addEventListener("afterprint", () => { isPrinting = false; applyTheme(); });
  applyTheme();
}

// ---- Keys ----

const KEYS = [
  ["/", "search functions"], ["Esc", "clear the search, close the details, reset zooms"], ["↑ ↓", "next function in the table, when one is shown"],
  ["← →", "move in the timeline; open and close in the tree"], ["+ −", "zoom the timeline"], ["Enter", "show the chosen function"], ["Space", "zoom to the chosen box of the flame graph"], ["?", "these keys"],
];

function startKeys() {
  const input = byId("search");
  input.addEventListener("input", () => { searchFor(input.value); address.set("search", input.value.trim()); });
  on("search", () => { byId("matches").textContent = search.found ? `${count([...search.found].filter((id) => figures.rows.has(id)).length)} found` : ""; });
  byId("keys").append(el("h2", {}, "Keys"), el("dl", {}, KEYS.flatMap(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])));
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("keys").addEventListener("click", () => byId("keys").close());
  addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, select, textarea");
    if (event.key === "Escape" && !byId("keys").open) {
      if (search.text || isTyping) { input.value = ""; searchFor(""); address.set("search", null); input.blur(); }
      else if (chosen !== null) choose(null);
      else tell("reset");
    } else if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key === "/") { event.preventDefault(); input.focus(); input.select(); }
    else if (event.key === "?") byId("keys").showModal();
    else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && chosen !== null && functionTable && (event.target === document.body || event.target.closest("#functions, #detail"))) {
      const rows = functionTable.shown;
      const next = rows.findIndex((row) => row[0] === chosen) + (event.key === "ArrowDown" ? 1 : -1);
      if (rows[next]) { event.preventDefault(); choose(rows[next][0]); }
    }
  });
  addEventListener("resize", eachFrame(() => tell("resize")));
}

startThemes();
drawSummary();
drawFunctions();
drawFlame();
drawTree();
drawTimeline();
drawLatency();
drawBalance();
drawRoofline();
drawMessages();
drawPlan();
drawMissing();
drawRecording();
drawNav();
startKeys();
if (address.get("search")) { byId("search").value = address.get("search"); searchFor(address.get("search")); }
if (functions[address.get("function")]) choose(Number(address.get("function")));
document.documentElement.dataset.ready = "true";
