"use strict";
const whole = document.documentElement.viewBox.baseVal.width;
const told = document.getElementById("told");
const boxes = [...document.querySelectorAll("g")].map((group) => {
  const [title, rect, label] = group.children;
  const number = (name) => Number(rect.getAttribute(name));
  return { group, rect, label, name: title.textContent, x: number("x"), y: number("y"), width: number("width") };
});

function zoom(to) {
  const scale = whole / to.width;
  for (const box of boxes) {
    const around = box.y < to.y && box.x <= to.x && box.x + box.width >= to.x + to.width - 0.02;
    const x = around ? 0 : (box.x - to.x) * scale;
    const width = around ? whole : box.width * scale;
    box.group.style.display = around || (x > -0.01 && x < whole - 0.01 && box.y >= to.y) ? "" : "none";
    box.rect.setAttribute("x", x);
    box.rect.setAttribute("width", width);
    box.label.setAttribute("x", x + 3);
    const letters = Math.floor(width / 7);
    box.label.textContent = letters < 3 ? "" : box.name.slice(0, Math.min(letters, box.name.lastIndexOf(": ")));
  }
}

for (const box of boxes) {
  box.group.addEventListener("click", () => zoom(box));
  box.group.addEventListener("mouseover", () => (told.textContent = box.name));
}

document.addEventListener("keydown", (key) => {
  if (key.key === "Escape") zoom({ x: 0, y: -1, width: whole });
  if (key.key !== "/" && !(key.key === "f" && key.ctrlKey)) return;
  key.preventDefault();
  const word = prompt("Mark functions whose names hold:") || "";
  let marked = 0;
  for (const box of boxes) {
    const found = word !== "" && box.name.includes(word);
    box.group.classList.toggle("marked", found);
    marked += found;
  }
  told.textContent = word === "" ? "" : `${marked} boxes marked`;
});

told.textContent = "click: zoom in, Escape: zoom out, /: search";
