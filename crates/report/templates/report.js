"use strict";
// Makes the drawn plots answer: nearest point under the pointer or by arrow keys, series shown and
// hidden, zoom. Without it the page is complete, only still.
for (const figure of document.querySelectorAll("figure.plot")) {
  const data = JSON.parse(figure.querySelector("script.data").textContent);
  const canvas = figure.querySelector(".canvas"), tip = figure.querySelector(".tip");
  const charts = [...figure.querySelectorAll("svg.chart")];
  const hidden = new Set();
  let view = { x0: 0, x1: 1, y0: 0, y1: 1 }; // shown part, as shares of the whole plot area
  let current = null;
  const chart = () => charts.find((svg) => getComputedStyle(svg).display !== "none") || charts[0];
  const num = (svg, name) => Number(svg.dataset[name]);
  const toShare = (svg, axis, value) => {
    const low = num(svg, axis + "Low"), high = num(svg, axis + "High");
    if (data[axis].log) return value > 0 ? Math.log(value / low) / Math.log(high / low) : NaN;
    return (value - low) / (high - low);
  };
  const toValue = (svg, axis, share) => {
    const low = num(svg, axis + "Low"), high = num(svg, axis + "High");
    return data[axis].log ? low * Math.pow(high / low, share) : low + share * (high - low);
  };
  const print = (value) => {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    const digits = size >= 1000 ? 0 : Math.max(0, 3 - Math.floor(Math.log10(size || 1)));
    return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 8), useGrouping: size >= 10000 }).replace(/,/g, "\u202f");
  };
  const shown = () => data.series.map((series, index) => ({ series, index })).filter(({ series, index }) => series.name && !hidden.has(index));

  // Place of a point in the drawing's own units, with the zoom applied.
  function place(svg, point, series) {
    const sx = (toShare(svg, "x", point[0]) + (series ? series.aside / num(svg, "width") : 0) - view.x0) / (view.x1 - view.x0);
    const sy = (toShare(svg, "y", series && series.area ? point[3] : point[1]) - view.y0) / (view.y1 - view.y0);
    return [num(svg, "left") + sx * num(svg, "width"), num(svg, "top") + (1 - sy) * num(svg, "height"),
      sx >= -1e-9 && sx <= 1 + 1e-9 && sy >= -1e-9 && sy <= 1 + 1e-9];
  }

  function show(series, index, speak) {
    const svg = chart(), point = data.series[series].points[index];
    const [x, y, inside] = place(svg, point, data.series[series]);
    figure.querySelectorAll(".focus").forEach((ring) => ring.remove());
    if (!inside && !speak) return hide();
    current = { series, index };
    if (inside) {
      const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      ring.setAttribute("class", "focus"); ring.setAttribute("r", 7); ring.setAttribute("cx", x); ring.setAttribute("cy", y);
      svg.append(ring);
    }
    const where = data.x.categories ? data.x.categories[Math.round(point[0])] : data.x.label + ": " + print(point[0]);
    let text = print(point[1]);
    if (point[2] != null && !data.series[series].area) text += " [" + print(point[2]) + ", " + print(point[3]) + "]";
    tip.textContent = "";
    const name = document.createElement("strong");
    name.textContent = data.series[series].name;
    tip.append(name, document.createElement("br"), where, document.createElement("br"), data.y.label + ": " + text);
    tip.hidden = false;
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const left = Math.min(Math.max(0, x * scale + 12), canvas.clientWidth - tip.offsetWidth);
    const above = y * scale - tip.offsetHeight - 12;
    tip.style.left = Math.max(0, left) + "px";
    tip.style.top = (above < 0 ? y * scale + 14 : above) + "px";
  }
  function hide() { tip.hidden = true; figure.querySelectorAll(".focus").forEach((ring) => ring.remove()); }

  // Where the pointer is, in the drawing's units.
  function pointer(event) {
    const svg = chart(), box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    return [svg, (event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }
  let from = null, band = null;
  canvas.addEventListener("pointermove", (event) => {
    const [svg, x, y] = pointer(event);
    if (from) return drag(svg, x);
    let best = null, distance = 40 * 40;
    for (const { series, index } of shown()) series.points.forEach((point, at) => {
      const [px, py, inside] = place(svg, point, series);
      const d = (px - x) ** 2 + ((py - y) * 0.7) ** 2;
      if (inside && d < distance) { distance = d; best = [index, at]; }
    });
    if (best) show(best[0], best[1], false); else hide();
  });
  canvas.addEventListener("pointerleave", () => { if (!from) hide(); });
  canvas.addEventListener("focusout", hide);

  // A drag across selects what to see.
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    const [svg, x] = pointer(event);
    from = x;
    band = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    band.setAttribute("class", "band"); band.setAttribute("y", num(svg, "top")); band.setAttribute("height", num(svg, "height"));
    svg.append(band); canvas.setPointerCapture(event.pointerId);
  });
  function drag(svg, x) { band.setAttribute("x", Math.min(from, x)); band.setAttribute("width", Math.abs(x - from)); }
  canvas.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [svg, x] = pointer(event), start = from;
    band.remove(); from = null;
    if (Math.abs(x - start) < 12) return;
    const share = (place) => view.x0 + Math.min(1, Math.max(0, (place - num(svg, "left")) / num(svg, "width"))) * (view.x1 - view.x0);
    zoomX(share(Math.min(x, start)), share(Math.max(x, start)));
  });
  canvas.addEventListener("pointercancel", () => { if (band) band.remove(); from = null; });
  canvas.addEventListener("dblclick", reset);

  function reset() { view = { x0: 0, x1: 1, y0: 0, y1: 1 }; if (hidden.size) zoomX(0, 1); else draw(); }
  // Shows a part of the abscissa, and of the ordinate what the points in it need.
  function zoomX(x0, x1) {
    if (x1 - x0 < 0.002) return;
    if (x1 - x0 > 0.999) { x0 = 0; x1 = 1; if (!hidden.size) return reset(); }
    const svg = chart();
    let y0 = Infinity, y1 = -Infinity;
    for (const { series } of shown()) for (const point of series.points) {
      const sx = toShare(svg, "x", point[0]);
      if (sx < x0 || sx > x1) continue;
      for (const value of [point[1], point[2], point[3]]) {
        const sy = value == null ? NaN : toShare(svg, "y", value);
        if (Number.isFinite(sy)) { y0 = Math.min(y0, sy); y1 = Math.max(y1, sy); }
      }
    }
    if (data.ground || data.y.zero) y0 = Math.min(y0, toShare(svg, "y", 0));
    const room = Math.max((y1 - y0) * 0.08, 0.01);
    view = y1 >= y0 ? { x0, x1, y0: Math.max(0, y0 - room), y1: Math.min(1, y1 + room) } : { ...view, x0, x1 };
    draw();
  }
  function zoomBy(factor) {
    let middle = (view.x0 + view.x1) / 2;
    if (current) middle = toShare(chart(), "x", data.series[current.series].points[current.index][0]);
    const half = (view.x1 - view.x0) * factor / 2;
    zoomX(Math.max(0, middle - half), Math.min(1, middle + half));
  }
  const original = charts.map((svg) => [".x-ticks", ".y-ticks"].map((name) => svg.querySelector(name).innerHTML));
  function draw() {
    hide();
    const whole = view.x1 - view.x0 > 0.999 && view.y1 - view.y0 > 0.999;
    tools.querySelector(".all").disabled = whole;
    charts.forEach((svg, at) => {
      const width = num(svg, "width"), height = num(svg, "height");
      const kx = 1 / (view.x1 - view.x0), ky = 1 / (view.y1 - view.y0);
      const zoom = svg.querySelector(".zoom"), cut = svg.querySelector(".cut");
      if (cut) cut.style.display = whole ? "" : "none";
      if (whole) zoom.removeAttribute("transform");
      else zoom.setAttribute("transform", `matrix(${kx} 0 0 ${ky} ${-view.x0 * width * kx} ${-(1 - view.y1) * height * ky})`);
      if (whole) { svg.querySelector(".x-ticks").innerHTML = original[at][0]; svg.querySelector(".y-ticks").innerHTML = original[at][1]; }
      else {
        if (view.x1 - view.x0 > 0.999) svg.querySelector(".x-ticks").innerHTML = original[at][0]; else ticks(svg, "x");
        ticks(svg, "y");
      }
    });
  }
  function ticks(svg, axis) {
    const across = axis === "x", low = toValue(svg, axis, view[axis + "0"]), high = toValue(svg, axis, view[axis + "1"]);
    const group = svg.querySelector(`.${axis}-ticks`);
    group.textContent = "";
    let values = [];
    if (across && data.x.categories) data.x.categories.forEach((_, at) => { if (at >= low && at <= high) values.push(at); });
    else {
      const raw = (high - low) / 5, power = Math.pow(10, Math.floor(Math.log10(raw)));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
      for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) values.push(value);
    }
    for (const value of values) {
      const [x, y] = place(svg, across ? [value, toValue(svg, "y", view.y0)] : [toValue(svg, "x", view.x0), value]);
      const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      text.textContent = across && data.x.categories ? data.x.categories[value] : print(value);
      if (across) {
        line.setAttribute("class", "tick"); line.setAttribute("d", `M${x} ${y}v5`);
        text.setAttribute("x", x); text.setAttribute("y", y + 18); text.setAttribute("text-anchor", "middle");
      } else {
        line.setAttribute("class", "grid"); line.setAttribute("d", `M${x} ${y}h${num(svg, "width")}`);
        text.setAttribute("x", x - 6); text.setAttribute("y", y + 4); text.setAttribute("text-anchor", "end");
      }
      group.append(line, text);
    }
  }

  canvas.addEventListener("keydown", (event) => {
    const all = shown().filter(({ series }) => series.points.length);
    if (!all.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (event.key === "+" || event.key === "=") zoomBy(0.5);
    else if (event.key === "-") zoomBy(2);
    else if (event.key === "0") reset();
    else if (event.key === "Escape") hide();
    else if (steps) {
      let at = current ? all.findIndex(({ index }) => index === current.series) : -1;
      let index = current && at >= 0 ? current.index : -1;
      if (at < 0) { at = 0; index = 0; }
      else if (steps[0]) {
        const x = all[at].series.points[index][0];
        at = (at + steps[0] + all.length) % all.length;
        const points = all[at].series.points;
        index = points.reduce((best, point, i) => Math.abs(point[0] - x) < Math.abs(points[best][0] - x) ? i : best, 0);
      } else index = Math.min(Math.max(0, index + steps[1]), all[at].series.points.length - 1);
      show(all[at].index, index, true);
    } else return;
    event.preventDefault();
  });

  for (const button of figure.querySelectorAll(".legend button")) button.addEventListener("click", () => {
    const index = Number(button.dataset.series), off = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!off));
    if (off) hidden.add(index); else hidden.delete(index);
    for (const group of figure.querySelectorAll(`.chart .series[data-series="${index}"]`)) group.classList.toggle("off", off);
    if (current && hidden.has(current.series)) { current = null; hide(); }
    zoomX(view.x0, view.x1);
  });

  const tools = document.createElement("div");
  tools.className = "tools";
  for (const [text, label, action] of [["+", "Zoom in", () => zoomBy(0.5)], ["−", "Zoom out", () => zoomBy(2)], ["Show all", "Show all of the plot", reset]]) {
    const button = document.createElement("button");
    button.type = "button"; button.textContent = text; button.setAttribute("aria-label", label); button.addEventListener("click", action);
    if (action === reset) { button.className = "all"; button.disabled = true; }
    tools.append(button);
  }
  canvas.after(tools);
}
// Chapters: a link opens the one that it leads to, print opens all, the contents mark the one in view.
{
const chapters = [...document.querySelectorAll("details.chapter")];
const reveal = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const chapter = target.matches("section.chapter") ? target.querySelector("details.chapter") : target.closest("details.chapter");
  if (chapter && !chapter.open) { chapter.open = true; target.scrollIntoView(); }
};
window.addEventListener("hashchange", reveal);
for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", () => {
  const chapter = document.querySelector(link.getAttribute("href") + " > details.chapter");
  if (chapter) chapter.open = true;
});
reveal();
let before = null;
window.addEventListener("beforeprint", () => { before = chapters.map((chapter) => chapter.open); for (const chapter of chapters) chapter.open = true; });
window.addEventListener("afterprint", () => { if (before) chapters.forEach((chapter, at) => { chapter.open = before[at]; }); before = null; });
for (const button of document.querySelectorAll(".fold-tools button")) {
  button.hidden = false;
  button.addEventListener("click", () => { for (const chapter of chapters) chapter.open = button.dataset.open === "true"; });
}
const links = new Map([...document.querySelectorAll(".contents li a")].map((link) => [link.getAttribute("href").slice(1), link]));
const seen = new Set();
const watch = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) seen.add(entry.target.id); else seen.delete(entry.target.id);
  const first = [...links.keys()].find((id) => seen.has(id));
  for (const [id, link] of links) if (id === first) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
}, { rootMargin: "0px 0px -60% 0px" });
for (const id of links.keys()) { const section = document.getElementById(id); if (section) watch.observe(section); }
// A table that is wider than its place is set closer, and scrolls where that is not enough. All are measured between two
// changes: a measure after each change would lay out the page again.
const wider = (boxes) => new Set(boxes.filter((box) => box.scrollWidth > box.clientWidth + 1));
const fits = (within) => {
  const boxes = [...within.querySelectorAll(".scroll")];
  for (const box of boxes) box.classList.remove("dense");
  for (const box of wider(boxes)) box.classList.add("dense");
  const scrolling = wider(boxes);
  for (const box of boxes) box.classList.toggle("wider", scrolling.has(box));
};
fits(document);
for (const name of ["resize", "hashchange"]) window.addEventListener(name, () => fits(document));
for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", () => fits(details));
// On a small screen the answer comes first.
const contents = document.querySelector("details.contents");
if (contents && matchMedia("(max-width: 60rem)").matches) contents.open = false;
}
document.documentElement.dataset.plots = String(document.querySelectorAll("figure.plot").length);
