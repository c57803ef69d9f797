// SPDX-License-Identifier: Apache-2.0 OR MIT
"use strict";
const svg = document.documentElement;
const told = document.getElementById("told");
const boxes = [...document.querySelectorAll(".box")].map((element, id) => {
  const [title, rect, label] = element.children;
  const [from, part, row] = element.dataset.at.split(" ").map(Number);
  const name = title.textContent.slice(0, title.textContent.lastIndexOf(": "));
  return { id, element, rect, label, title: title.textContent, name, folded: name.toLowerCase(), from, part, row };
});
const whole = { id: -1, from: 0, part: 1, row: -1 };
const ROUNDING = 1e-8;
const idle = "Click: zoom in. Esc: zoom out. / or Ctrl F: search.";
let zoomed = whole;

/** Cuts a label where its box ends. */
function fit(box, width) {
  box.label.textContent = width < 22 ? "" : box.name;
  if (width < 22 || box.label.getComputedTextLength() <= width - 8) return;
  let [least, most] = [0, box.name.length];
  while (least < most) {
    const middle = (least + most + 1) >> 1;
    if (box.label.getSubStringLength(0, middle) <= width - 20) least = middle;
    else most = middle - 1;
  }
  box.label.textContent = least > 1 ? box.name.slice(0, least) + "…" : "";
}

function draw() {
  const width = svg.clientWidth || innerWidth;
  const end = zoomed.from + zoomed.part;
  for (const box of boxes) {
    const isAbove = box.row < zoomed.row && box.from <= zoomed.from + ROUNDING && box.from + box.part >= end - ROUNDING;
    const isInside = box.row >= zoomed.row && box.from + box.part > zoomed.from + ROUNDING && box.from < end - ROUNDING;
    const part = isAbove ? 1 : box.part / zoomed.part;
    box.element.style.display = isAbove || isInside ? "" : "none";
    if (!isAbove && !isInside) continue;
    box.element.setAttribute("x", `${isAbove ? 0 : 100 * (box.from - zoomed.from) / zoomed.part}%`);
    box.element.setAttribute("width", `${100 * part}%`);
    box.element.classList.toggle("above", isAbove);
    fit(box, part * width);
  }
}

/** Keeps the zoom and the search in the address, so that it leads back to them. */
function remember() {
  const state = new URLSearchParams();
  if (zoomed !== whole) state.set("zoom", zoomed.id);
  if (field.value) state.set("search", field.value);
  try { history.replaceState(null, "", "#" + state); } catch { /* a viewer that keeps no history */ }
}

function zoom(to) {
  zoomed = to;
  reset.style.visibility = to === whole ? "hidden" : "visible";
  draw();
  remember();
}

function search() {
  const word = field.value.toLowerCase();
  svg.classList.toggle("searching", word !== "");
  // A box follows the one around it. What is below a match is part of its time already.
  const isWithin = [];
  let part = 0;
  for (const box of boxes) {
    const isMatch = word !== "" && box.folded.includes(word);
    const isCounted = box.row > 0 && isWithin[box.row - 1];
    box.element.classList.toggle("match", isMatch);
    if (isMatch && !isCounted) part += box.part;
    isWithin[box.row] = isMatch || isCounted;
  }
  told.textContent = word === "" ? idle : `matched: ${(100 * part).toFixed(1)} % of the time`;
  remember();
}

const html = (name) => document.createElementNS("http://www.w3.org/1999/xhtml", name);
const tools = document.createElementNS("http://www.w3.org/2000/svg", "foreignObject");
const [field, reset] = [html("input"), html("button")];
Object.assign(field, { type: "search", placeholder: "Search ( / )" });
field.setAttribute("aria-label", "Search functions");
reset.textContent = "Reset zoom";
for (const [name, value] of [["x", "10"], ["y", "72"], ["width", "360"], ["height", "28"]]) tools.setAttribute(name, value);
tools.append(field, reset);
document.getElementById("tools").append(tools);
told.setAttribute("x", "380");
told.setAttribute("y", "88");

field.addEventListener("input", search);
reset.addEventListener("click", () => zoom(whole));
for (const box of boxes) {
  box.element.addEventListener("click", () => zoom(box));
  box.element.addEventListener("mouseover", () => (told.textContent = box.title));
  box.element.addEventListener("mouseout", () => { if (field.value) search(); else told.textContent = idle; });
}
addEventListener("keydown", (key) => {
  if (key.key === "Escape") {
    if (field.value) { field.value = ""; search(); } else zoom(whole);
    field.blur();
  } else if ((key.key === "/" && key.target !== field) || (key.key === "f" && (key.ctrlKey || key.metaKey))) {
    key.preventDefault();
    field.focus();
    field.select();
  }
});
addEventListener("resize", draw);

const state = new URLSearchParams(location.hash.slice(1));
field.value = state.get("search") || "";
search();
zoom(boxes[state.get("zoom")] || whole);
