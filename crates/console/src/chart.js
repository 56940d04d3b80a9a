"use strict";
// What the console and the page of `--live` share: elements, numbers with units, charts.
function element(kind, text, where, type) {
  const made = document.createElement(kind);
  made.textContent = text ?? "";
  if (type) made.className = type;
  where?.append(made);
  return made;
}
function drawn(kind, attributes, where, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  where?.append(made);
  return made;
}
const time = ms => ms == null ? "" : new Date(ms).toISOString().replace(/:\d\d\.\d+Z$/, "Z").replace("T", " ");
const number = value => value == null || !isFinite(value) ? "–" : Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(+value.toPrecision(4));
function seconds(s) {
  if (s == null || !isFinite(s)) return "–";
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]) if (Math.abs(s) >= size) return number(s / size) + " " + unit;
  return s ? number(s) + " s" : "0 s";
}
const lasting = s => s < 90 ? Math.round(s) + " s" : s < 5400 ? Math.round(s / 60) + " min" : (s / 3600).toFixed(1) + " h";

// The distance of four or five ticks over a range.
function nice(range) {
  const power = 10 ** Math.floor(Math.log10(range / 4));
  return power * [1, 2, 5, 10].find(times => times * power >= range / 4.001);
}
// Lines and dots over axes from zero; the values stand in a table beside it or in its name.
function chart(where, { title, x, y, lines, dots = [], marks = [], now, unit = number }) {
  const figure = where.querySelector(`figure[data-title="${CSS.escape(title)}"]`) ?? element("figure", "", where);
  figure.dataset.title = title;
  figure.replaceChildren();
  const [W, H, L, B, T] = [480, 220, 62, 34, 10];
  const points = [...lines, ...dots].flatMap(line => line.points).filter(([a, b]) => isFinite(a) && isFinite(b));
  const right = Math.max(...points.map(p => p[0]), now ?? 0, 1e-12), top = 1.08 * Math.max(...points.map(p => p[1]), 0) || 1;
  const left = Math.min(...points.map(p => p[0]), 0);
  const at = ([a, b]) => [L + (a - left) / (right - left || 1) * (W - L - 12), H - B - Math.min(1.02, b / top) * (H - B - T)];
  const last = lines.map(line => line.name + " " + unit(line.points.at(-1)?.[1])).join(", ");
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: ${last}` }, figure);
  for (let v = 0, step = nice(top); v <= top; v += step) {
    const y = at([left, v])[1];
    drawn("path", { d: `M${L} ${y}H${W - 12}`, class: "axis" }, svg);
    drawn("text", { x: L - 5, y: y + 4, "text-anchor": "end", class: "soft" }, svg, v ? unit(v) : "0");
  }
  for (let v = left, step = nice(right - left); v <= right; v += step) drawn("text", { x: at([v, 0])[0], y: H - B + 15, "text-anchor": "middle", class: "soft" }, svg, number(v));
  drawn("text", { x: (W + L) / 2, y: H - 4, "text-anchor": "middle" }, svg, x);
  for (const mark of marks) drawn("path", { d: `M${at([mark, 0])[0]} ${T}V${H - B}`, class: "change" }, svg);
  if (now != null) drawn("path", { d: `M${at([now, 0])[0]} ${T}V${H - B}`, class: "now" }, svg);
  for (const line of lines) {
    const d = line.points.filter(p => isFinite(p[1])).map(p => at(p).map(v => v.toFixed(1)).join(" ")).join("L");
    if (d) drawn("path", { d: "M" + d, class: "line " + (line.type ?? "") }, svg);
  }
  for (const { points, type = "" } of dots) for (const point of points) {
    const [cx, cy] = at(point);
    drawn("circle", { cx, cy, r: 3.5, class: "dot " + type }, svg);
  }
  figure.prepend(element("figcaption", title + (y ? ` (${y})` : "") + ": " + [...lines, ...dots].map(line => line.name).filter(Boolean).join(", ")));
  return figure;
}

// The seconds of a load or a run as they come: what clients saw, and how busy every host was in the last one.
function liveSeconds(where, all) {
  const over = key => all.map(second => [second.elapsed_s, second[key]]).filter(([, value]) => value != null);
  const x = "seconds of load", charts = where.querySelector("div") ?? element("div", "", where);
  chart(charts, { title: "Throughput", x, y: "1/s", lines: [{ name: "throughput", points: over("throughput_per_s") }] });
  chart(charts, { title: "Response time", x, y: "", unit: seconds, lines: [{ name: "mean", points: over("response_time_mean_s") }, { name: "p99", type: "second", points: over("response_time_p99_s") }] });
  if (over("errors").length) chart(charts, { title: "Errors", x, y: "1/s", lines: [{ name: "errors", points: over("errors") }] });
  const hosts = where.querySelector("ul") ?? element("ul", "", where);
  hosts.replaceChildren(...(all.at(-1)?.hosts ?? []).map(host => element("li", `${host.name}: ` + (host.silent_s == null ? `${number(host.busy_cores)} of ${host.cores} cores busy` : `silent for ${number(host.silent_s)} s`))));
}
