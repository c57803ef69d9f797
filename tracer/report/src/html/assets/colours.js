// SPDX-License-Identifier: Apache-2.0 OR MIT
// Boxes in the colours of a metric per time instead of their libraries: both graphs, by what all calls of a function did.

/** The metrics, each with its value by function. Rates of functions are in the table; sums become rates by the inclusive time. */
const metrics = (() => {
  const { columns, rows } = data.functions;
  const spent = columns.findIndex((column) => column.key === "inclusive_ns") + 1;
  const kinds = columns.flatMap(({ key, title, kind }, place) => {
    const at = place + 1;
    if (kind === "ratio" && !key.endsWith("_per_call")) return [{ title, of: (row) => row[at] }];
    if (kind === "count" && key.endsWith("_inclusive")) return [{ title: `${title}/s`, of: (row) => (row[spent] > 0 && row[at] !== null ? (row[at] * 1e9) / row[spent] : null) }];
    return [];
  });
  const known = kinds.map(({ title, of }) => ({ title, values: new Map(rows.map((row) => [row[0], of(row)]).filter(([, value]) => typeof value === "number")) }));
  return known.map((metric) => ({ ...metric, most: Math.max(0, ...metric.values.values()) })).filter((metric) => metric.most > 0);
})();

/** The metric by which boxes are coloured; null: by library. */
let colouredBy = metrics.find((metric) => metric.title === address.get("by")) || null;

const metricValue = (fn) => (colouredBy && fn ? colouredBy.values.get(fn.id) : undefined);

function boxColour(fn) {
  if (!colouredBy) return colour(fn);
  const value = metricValue(fn);
  if (value === undefined) return css("--line");
  return `color-mix(in oklab, ${css("--grown")} ${(100 * Math.sqrt(value / colouredBy.most)).toFixed(0)}%, ${css("--same")})`;
}

const rounded = (value) => (value >= 1000 ? count(Math.round(value)) : String(Number(value.toPrecision(3))));

/** What a box has of the metric, in words. */
function metricText(fn) {
  if (!colouredBy) return "";
  const value = metricValue(fn);
  return value === undefined ? `${colouredBy.title}: not known` : `${rounded(value)} ${colouredBy.title}`;
}

/** The key to the colours of boxes, and the choice of what they show. */
function colourKeys() {
  const keys = el("span", {});
  const fill = () => keys.replaceChildren(colouredBy
    ? el("div", { class: "legend" }, "0", el("span", { class: "ramp" }), `${rounded(colouredBy.most)} ${colouredBy.title}`)
    : legend(8));
  fill();
  on("colours", fill);
  return keys;
}

function colourChoice() {
  if (metrics.length === 0) return null;
  const names = ["libraries", ...metrics.map((metric) => metric.title)];
  const choice = el("select", { "aria-label": "Colours", onchange: () => {
    colouredBy = metrics[choice.selectedIndex - 1] || null;
    address.set("by", colouredBy && colouredBy.title);
    tell("colours");
  } }, names.map((name) => el("option", {}, name)));
  const fill = () => { choice.selectedIndex = metrics.indexOf(colouredBy) + 1; };
  fill();
  on("colours", fill);
  return el("label", {}, "colours: ", choice);
}
