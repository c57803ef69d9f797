// SPDX-License-Identifier: Apache-2.0 OR MIT
// What has changed since an earlier recording, by call path.

/** The change of each node of the tree by its id; null where nothing is compared. */
const change = (() => {
  const { before } = data;
  if (!before) return null;
  // A library keeps its name from version to version.
  const key = (fn, libraries) => `${fn.library >= 0 ? libraries[fn.library].split("/").pop().replace(/\.so.*/, "") : ""} ${fn.name}`;
  const paths = libraries.map((library) => library.path);
  const earlier = treeOf(before.tree, before.names.map(([name, library]) => ({ name, library })));
  const scale = before.lengths ? before.lengths[1] / Math.max(before.lengths[0], 1) : 1;
  const of = new Map();
  const gone = [];
  // Names may occur twice: then the first of both are the same.
  const compare = (nodes, others) => {
    const known = new Map();
    for (const other of others) {
      const name = key(other.fn, before.libraries);
      known.set(name, [...(known.get(name) || []), other]);
    }
    const below = nodes.map((node) => {
      const other = (known.get(key(node.fn, paths)) || []).shift();
      of.set(node.id, other ? other.weight * scale : 0);
      return [node.children, other ? other.children : []];
    });
    gone.push(...[...known.values()].flat());
    return below;
  };
  const next = [[tree.roots, earlier.roots]];
  while (next.length) next.push(...compare(...next.pop()));
  gone.sort((a, b) => b.weight - a.weight);
  return { of, gone, scale, total: earlier.total * scale, title: before.title, isRate: Boolean(before.lengths) };
})();

/** How much a box has grown, from -1, to nothing, to 1, from nothing. */
function growth(now, was) {
  return now === was ? 0 : (now - was) / Math.max(now, was);
}

/** The colour of a box by its growth: red if it takes more time than before, blue if it takes less. */
function changeColour(now, was) {
  const part = growth(now, was);
  return `color-mix(in oklab, ${css(part > 0 ? "--grown" : "--shrunk")} ${(100 * Math.sqrt(Math.abs(part))).toFixed(0)}%, ${css("--same")})`;
}

/** What a box was, in words. */
function wasText(now, was) {
  if (was === 0) return data.before.tree.left_out > 0 ? "not among the call paths of the first recording that are on this page" : "not in the first recording";
  const by = (100 * (now - was)) / was;
  return `${time(was)} before${change.isRate && change.scale !== 1 ? " in as much time" : ""}: ${by >= 0 ? "+" : "−"}${Math.abs(by) >= 1000 ? count(Math.round(Math.abs(by))) : Math.abs(by).toFixed(1)} %`;
}

/** What the flame graph says of the comparison. */
function changeHint() {
  const missing = change.gone.slice(0, 5).map((node) => `${node.fn.name} (${time(node.weight * change.scale)})`).join(", ");
  const rates = change.isRate ? " The recordings differ in length, so times before are scaled to as much time." : "";
  return `Compared with ${change.title}, which took ${time(change.total)} in traced calls, now ${time(tree.total)}.${rates}${missing ? ` Call paths that are gone${data.tree.left_out > 0 ? ", or have too little time now to be on this page" : ""}: ${missing}${change.gone.length > 5 ? ` and ${count(change.gone.length - 5)} more` : ""}.` : ""}`;
}
