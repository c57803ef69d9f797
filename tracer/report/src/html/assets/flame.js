// SPDX-License-Identifier: Apache-2.0 OR MIT
// The call tree as a flame graph: a box per call path, as wide as its time, next to the box of its callers.

function drawFlame() {
  const section = byId("flame");
  if (tree.total === 0) {
    if (data.info.calls === 0) return section.remove();
    section.append(el("p", { class: "empty" }, "No call has a known time, so there is nothing to draw."));
    return;
  }
  hint("flame", "Width is time with callees, without tracing, all threads together. Click a box to zoom in, a name below to see that function; Enter shows the function of the chosen box.", leftOut(data.tree.left_out, "call paths with less time"));

  // Browsers have a largest canvas: of deeper recursion a part is drawn, around the zoomed box.
  const [ROW, MOST_ROWS, CALLERS] = [21, 400, 20];
  const root = { id: -1, children: tree.roots, weight: tree.total, level: 0, fn: null, from: 0, next: 0 };
  // Callers come before their callees.
  for (const node of tree.nodes) {
    node.above = node.parent >= 0 ? tree.nodes[node.parent] : root;
    node.level = node.above.level + 1;
    node.from = node.above.next;
    node.next = node.from;
    node.above.next += node.weight;
  }

  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": "Flame graph; arrow keys move, Enter shows the function" });
  const status = el("div", { class: "status" });
  const matched = el("output", {});
  const state = { zoomed: root, at: root, flipped: address.get("graph") === "flame" };
  let drawn = [];
  let deeper = 0;

  /** Boxes of this many rows are seen: those below the zoomed one, and its callers. */
  function rows() {
    let most = state.zoomed.level;
    const stack = [state.zoomed];
    while (stack.length) {
      const node = stack.pop();
      most = Math.max(most, node.level);
      stack.push(...node.children);
    }
    return most + 1;
  }

  const draw = eachFrame(() => {
    const all = rows();
    const first = all > MOST_ROWS ? Math.max(0, state.zoomed.level - CALLERS) : 0;
    const levels = Math.min(all - first, MOST_ROWS);
    deeper = all - first - levels;
    const { context, width, height } = prepared(canvas, levels * ROW + 2);
    context.font = "12.5px system-ui, sans-serif";
    const { zoomed } = state;
    const scale = width / zoomed.weight;
    const above = new Set();
    for (let node = zoomed.above; node; node = node.above) above.add(node);
    drawn = [];
    const stack = [root];
    while (stack.length) {
      const node = stack.pop();
      const isAbove = above.has(node);
      const x = isAbove ? 0 : (node.from - zoomed.from) * scale;
      const wide = isAbove ? width : node.weight * scale;
      if (wide < 0.4 || x > width || x + wide < 0) continue;
      const row = node.level - first;
      if (row >= levels) continue;
      stack.push(...node.children);
      if (row < 0) continue;
      const y = state.flipped ? height - (row + 1) * ROW - 1 : row * ROW + 1;
      drawn.push({ node, x, y, wide });
      const isFound = search.found && node.fn && search.found.has(node.fn.id);
      context.globalAlpha = isAbove ? 0.45 : search.found && !isFound ? 0.28 : 1;
      context.fillStyle = node === root ? css("--line") : isFound ? css("--match") : boxColour(node.fn);
      context.fillRect(x, y, Math.max(wide - (wide > 3 ? 1 : 0), 0.4), ROW - 1);
      context.globalAlpha = search.found && !isFound && node !== root ? 0.6 : 1;
      if (wide > 24) {
        context.fillStyle = isFound ? "#fff" : node === root ? css("--ink") : css("--box-ink");
        context.fillText(fitting(context, node === root ? "all" : node.fn.short, wide - 10), x + 5, y + ROW / 2);
      }
      context.globalAlpha = 1;
      if (node === state.at && document.activeElement === canvas) {
        context.strokeStyle = css("--accent");
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, Math.max(wide - 3, 1), ROW - 3);
      }
    }
    say(state.at);
  });

  const share = (node) => `${time(node.weight)}, ${percent(node.weight / tree.total)}`;

  /** The chain of callers of a box, each leading to its function. */
  function say(node) {
    const chain = [];
    for (let at = node; at && at.fn; at = at.above) chain.unshift(at);
    const parts = chain.slice(-8).flatMap((at, place) => [place ? " › " : "", functionLink(at.fn)]);
    const below = deeper > 0 ? `  (${count(deeper)} deeper rows are not drawn: zoom in to see them)` : "";
    status.replaceChildren(...(chain.length > 8 ? ["… › "] : []), ...parts, chain.length ? `  ${share(node)}` : `all: ${share(root)}`, below);
  }

  function zoom(node) {
    state.zoomed = node;
    state.at = node;
    address.set("zoom", node === root ? null : node.id);
    draw();
  }

  function under(event) {
    const { left, top } = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const box = drawn.findLast((box) => x >= box.x && x < box.x + Math.max(box.wide, 1) && y >= box.y && y < box.y + ROW);
    return box && box.node;
  }

  canvas.addEventListener("click", (event) => { const node = under(event); if (node) zoom(node); });
  canvas.addEventListener("dblclick", (event) => { const node = under(event); if (node && node.fn) choose(node.fn.id); });
  canvas.addEventListener("mousemove", (event) => {
    const node = under(event);
    canvas.style.cursor = node ? "pointer" : "";
    if (!node) return tip.hide();
    if (node === root) return tip.show(event, "all traced calls", share(root));
    const self = node.timed > 0 ? `${time(node.exclusive)} by itself, ` : "";
    const recorded = node.inclusive > 1.01 * node.weight ? `${time(node.inclusive)} recorded, with tracing` : "";
    const untimed = node.calls - node.timed;
    tip.show(event, node.fn.name, libraryName(node.fn), share(node), recorded, metricText(node.fn), `${self}${count(node.calls)} calls`, untimed > 0 ? `${count(untimed)} of them not timed` : "");
  });
  canvas.addEventListener("mouseleave", tip.hide);
  canvas.addEventListener("keydown", (event) => {
    const at = state.at;
    const siblings = at.above ? at.above.children : [at];
    const place = siblings.indexOf(at);
    const down = at.children.slice().sort((a, b) => b.weight - a.weight)[0];
    const [inward, outward] = state.flipped ? ["ArrowUp", "ArrowDown"] : ["ArrowDown", "ArrowUp"];
    const next = { [inward]: down, [outward]: at.above, ArrowLeft: siblings[place - 1], ArrowRight: siblings[place + 1] }[event.key];
    if (next) {
      state.at = next;
      if (next.level < state.zoomed.level) state.zoomed = next;
      draw();
    } else if (event.key === "Enter" && at.fn) choose(at.fn.id);
    else if (event.key === " ") zoom(at);
    else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
  });
  canvas.addEventListener("focus", draw);
  canvas.addEventListener("blur", draw);

  function flip(isFlame) {
    state.flipped = isFlame;
    address.set("graph", isFlame ? "flame" : null);
    icicle.setAttribute("aria-pressed", !isFlame);
    flame.setAttribute("aria-pressed", isFlame);
    draw();
  }
  const icicle = el("button", { type: "button", onclick: () => flip(false) }, "Icicle");
  const flame = el("button", { type: "button", onclick: () => flip(true) }, "Flame");
  const reset = el("button", { type: "button", onclick: () => zoom(root) }, "Reset zoom");
  section.append(
    el("div", { class: "tools" }, el("span", { class: "group" }, icicle, flame), reset, matched, el("span", { class: "gap" }), colourChoice(), colourKeys()),
    el("div", { class: "panel" }, el("div", { class: "scroll" }, canvas)), status);

  on("search", () => {
    // What is below a match is part of its time already.
    let sum = 0;
    for (const node of search.found ? tree.nodes : []) {
      const isCounted = node.above.isMatched === true;
      const isFound = search.found.has(node.fn.id);
      node.isMatched = isCounted || isFound;
      if (isFound && !isCounted) sum += node.weight;
    }
    matched.textContent = search.found ? `matched: ${percent(sum / root.weight)} of the time` : "";
    draw();
  });
  on("reset", () => zoom(root));
  on("theme", draw);
  on("colours", draw);
  on("resize", draw);
  const linked = tree.nodes[address.get("zoom")];
  if (linked) { state.zoomed = linked; state.at = linked; }
  flip(state.flipped);
}
