// SPDX-License-Identifier: Apache-2.0 OR MIT
// What all parts of the page use: the data, how numbers are shown, colours, and who tells whom.

const data = JSON.parse(document.getElementById("data").textContent);

/** An element; texts among the children stay texts, whatever they hold. */
function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const byId = (id) => document.getElementById(id);

// ---- Functions ----

/** A C++ name without what is in its angle brackets and parentheses: long names are all alike otherwise. */
function shorten(name) {
  if (name.length <= 48) return name;
  let depth = 0;
  let short = "";
  for (let place = 0; place < name.length; place++) {
    const letter = name[place];
    const isOperator = (letter === "<" || letter === ">") && /operator[<>=-]*$/.test(name.slice(0, place));
    const opens = "<(".includes(letter) && !isOperator;
    const closes = ">)".includes(letter) && !isOperator && depth > 0;
    if (closes) depth--;
    if (depth === 0) short += opens && !(name[place + 1] === ")") ? letter + "…" : letter;
    if (opens) depth++;
  }
  return depth === 0 ? short : name;
}

const functions = data.names.map(([name, library, exit, entry, offset, size, symbols], id) => (
  { id, name, short: shorten(name), folded: name.toLowerCase(), library, exit, entry, offset, size, symbols: symbols || [] }
));
const libraries = data.info.libraries.map((library) => ({ ...library, name: library.name || library.path.split("/").pop() }));
/** Where all functions are in one library, the legend names it. */
const isOneLibrary = new Set(functions.map((fn) => fn.library).filter((library) => library >= 0)).size === 1;
const libraryName = (fn) => (fn.library >= 0 ? libraries[fn.library].name : "");

// ---- Numbers ----

const UNKNOWN = "–";
const UNITS = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]];
const count = (number) => {
  if (Array.isArray(number)) return "≥ " + count(number[0]);
  return number === null || number === undefined ? UNKNOWN : Number(number).toLocaleString("en-US");
};

/** A time with four digits, in nanoseconds with all. */
function time(ns) {
  if (ns === null || ns === undefined) return UNKNOWN;
  if (Array.isArray(ns)) return "≤ " + time(ns[0]);
  if (ns < 1000) return `${Math.round(ns)} ns`;
  const [unit, scale] = UNITS.filter(([, scale]) => ns >= scale).pop();
  const value = ns / scale;
  return `${value.toLocaleString("en-US", { maximumFractionDigits: value < 10 ? 3 : value < 100 ? 2 : 1 })} ${unit}`;
}

/** An instant since the recording began. */
const moment = (ns) => `${(ns / 1e9).toFixed(6)} s`;

const percent = (part, digits = 1) =>
  part > 0 && part < 0.5 * 10 ** (-2 - digits) ? `<${(10 ** -digits).toFixed(digits)} %` : `${(100 * part).toFixed(digits)} %`;
const plain = (value) => (Array.isArray(value) ? value[0] : value);

/** The unit of a column of values up to this one: all are shown in that unit, so that the eye can order them. */
const unitFor = (largest) => UNITS.find(([, scale]) => largest / scale < 1e5) || UNITS[3];

/** A time in the unit of its column, the fraction in a fainter colour. */
function timeIn([unit, scale], ns) {
  if (ns === null || ns === undefined) return el("span", { class: "unknown" }, UNKNOWN);
  const value = plain(ns) / scale;
  const bound = Array.isArray(ns) ? "≤ " : "";
  if (unit === "ns") return bound + count(Math.round(value));
  if (value > 0 && value < 0.0005) return el("span", { class: "fraction" }, bound + "<0.001");
  const [whole, fraction] = value.toFixed(3).split(".");
  return el("span", {}, bound + count(whole), el("span", { class: "fraction" }, "." + fraction));
}

// ---- Colours ----

/** Hues that are told apart. A library keeps its hue from page to page, as it follows from its name. */
const HUES = [212, 30, 152, 262, 348, 92, 186, 48, 236, 12, 126, 288];
const hash = (text) => [...text].reduce((sum, letter) => (Math.imul(sum, 33) ^ letter.codePointAt(0)) >>> 0, 5381);

const hues = (() => {
  const shares = new Map();
  const self = data.functions.columns.findIndex((column) => column.key === "exclusive_share") + 1;
  for (const row of data.functions.rows) {
    const library = functions[row[0]].library;
    shares.set(library, (shares.get(library) || 0) + (row[self] || 0));
  }
  const taken = new Set();
  const hues = new Map();
  const order = libraries.map((_, place) => place).sort((a, b) => (shares.get(b) || 0) - (shares.get(a) || 0) || a - b);
  for (const place of order) {
    const first = hash(libraries[place].name.replace(/\.so.*/, "")) % HUES.length;
    const free = HUES.map((_, step) => HUES[(first + step) % HUES.length]).filter((hue) => !taken.has(hue));
    const isApart = (hue) => [...taken].every((other) => Math.min(Math.abs(hue - other), 360 - Math.abs(hue - other)) >= 40);
    const hue = free.find(isApart) ?? free[0] ?? HUES[first];
    taken.add(hue);
    hues.set(place, hue);
  }
  return { of: hues, shares, order };
})();

let style = null;
/** A colour of the style sheet, as it is in the present theme. */
function css(name) {
  style = style || getComputedStyle(document.documentElement);
  return style.getPropertyValue(name).trim();
}

/** The colour of a function's boxes: the hue is the library's, the lightness differs a little by function. */
function colour(fn) {
  const light = parseFloat(css("--box-light"));
  if (fn.library < 0) return `hsl(220 4% ${light}%)`;
  return `hsl(${hues.of.get(fn.library)} ${css("--box-saturation")} ${light + (hash(fn.name) % 9) - 4}%)`;
}
const libraryColour = (place) => `hsl(${hues.of.get(place)} ${css("--box-saturation")} ${css("--box-light")})`;

function swatch(place) {
  const square = el("span", { class: "swatch" });
  const paint = () => { square.style.background = place >= 0 ? libraryColour(place) : css("--faint"); };
  paint();
  on("theme", paint);
  return square;
}

/** The libraries with time, largest first, each with its colour and share. */
function legend(most = 12) {
  const total = [...hues.shares.values()].reduce((sum, share) => sum + share, 0);
  const used = hues.order.filter((place) => hues.shares.has(place));
  const shown = used.slice(0, most).map((place) => {
    const share = total > 0 ? ` ${percent(hues.shares.get(place) / total)}` : "";
    return el("span", { title: libraries[place].path }, swatch(place), libraries[place].name, share);
  });
  if (used.length > most) shown.push(el("span", {}, `and ${used.length - most} more`));
  return el("div", { class: "legend" }, shown);
}

// ---- Who tells whom ----

const listeners = {};
const on = (event, listener) => (listeners[event] = listeners[event] || []).push(listener);
const tell = (event, value) => (listeners[event] || []).forEach((listener) => listener(value));

/** What was searched, in lower case, and which functions have it in their names; none where nothing is searched. */
const search = { text: "", found: null };

function searchFor(text) {
  search.text = text.trim().toLowerCase();
  const words = search.text.split(/\s+/).filter(Boolean);
  const matches = (fn) => words.every((word) => fn.folded.includes(word) || libraryName(fn).toLowerCase().includes(word));
  search.found = words.length ? new Set(functions.filter(matches).map((fn) => fn.id)) : null;
  tell("search");
}

/** Redraws at most once a frame. */
function eachFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };
}

/** Prepares a canvas of this height for drawing in CSS pixels. */
function prepared(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  canvas.style.height = `${height}px`;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  return { context, width, height };
}

/** As much of a text as is not wider than that, with a mark where it was cut. */
function fitting(context, text, width) {
  if (width < 14) return "";
  if (context.measureText(text).width <= width) return text;
  let [least, most] = [0, text.length];
  while (least < most) {
    const middle = (least + most + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= width) least = middle;
    else most = middle - 1;
  }
  return least > 1 ? text.slice(0, least) + "…" : "";
}

const tip = {
  show(event, title, ...lines) {
    const box = byId("tip");
    box.replaceChildren(el("b", {}, title), ...lines.filter(Boolean).map((line) => el("div", {}, line)));
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
    const top = event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, top)}px`;
  },
  hide() { byId("tip").hidden = true; },
};

/** What the address says of the page's state, and says from now on. */
const address = {
  get(name) { return new URLSearchParams(location.hash.slice(1)).get(name); },
  set(name, value) {
    const state = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    if (value === null || value === undefined || value === "") state.delete(name);
    else state.set(name, value);
    const text = state.toString();
    try { history.replaceState(null, "", text ? "#" + text : location.pathname + location.search); } catch { /* a viewer that keeps no history */ }
  },
};

/** A heading with what is to be known of its section. */
const hint = (section, ...texts) => byId(section).append(el("p", { class: "hint" }, ...texts));
const leftOut = (rows, what) => (rows > 0 ? ` ${count(rows)} ${what} are not on this page.` : "");
