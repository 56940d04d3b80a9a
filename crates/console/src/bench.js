"use strict";
// A model is kept as its file says it, with a list of classes. What is drawn and listed is made from it again
// where stations, classes, pools or routes come or go; a slider changes a number, and asks for the solution.
let model, modelVersion = "", modelRead = "", modelSaved = "", modelChosen = "", measured = null, asked = 0, inFlight = false, wanted = false;
const FRESH = { classes: [{ name: "clients", population: 20, think_time_s: 1 }], stations: [{ name: "app", servers: 4, service_time_s: 0.08 }, { name: "database", servers: 1, service_time_s: 0.03 }] };
const TIMES = ["service_time_s", "service_demand_s", "service_rate_per_s"];

function taken(read) {
  model = structuredClone(read);
  model.stations ??= [];
  if (!model.classes) {
    const only = model.classes = [{ name: "clients" }];
    for (const key of ["population", "think_time_s", "arrival_rate_per_s"]) if (key in model) { only[0][key] = model[key]; delete model[key]; }
  }
  rebuild();
  modelSaved = JSON.stringify(model);
}
const modelDirty = () => JSON.stringify(model) !== modelSaved;
const several = () => model.classes.length > 1;
const timeKey = station => TIMES.find(key => key in station);

// ---- the solution, of the last model that was asked for
async function solveNow() {
  wanted = true;
  if (inFlight) return;
  inFlight = true;
  while (wanted) {
    wanted = false;
    try {
      const answer = await call("POST", "solve", { model });
      $("model-problem").textContent = "";
      shownSolution(answer);
    } catch (error) {
      // Nothing that was said of another model stays.
      $("model-problem").textContent = error.message;
      $("solved").textContent = "no solution";
      for (const id of ["charts", "caveats"]) $(id).replaceChildren();
      figures();
      network({ stations: [] }, null);
    }
  }
  inFlight = false;
}
function changed() {
  asked++;
  solveNow();
}

function shownSolution(answer) {
  const queues = answer.stations.filter((_, i) => model.stations[i]?.type !== "delay");
  const limit = queues.reduce((most, station) => (station.utilization > (most?.utilization ?? 0) ? station : most), null);
  $("solved").textContent = `${answer.solver}, ${answer.accuracy}, ${answer.solved_in_ms.toFixed(1)} ms` + (limit ? `; busiest: ${limit.name} (${number(100 * limit.utilization)} %)` : "");
  $("solved").dataset.ms = answer.solved_in_ms;
  figures([["class", "throughput (1/s)", "response", "in system"], ...answer.classes.map(c => [c.name, number(c.throughput_per_s), seconds(c.response_s), number(c.number)])], [["station", "utilization", "there", "per request"], ...answer.stations.map(s => [s.name, number(s.utilization), number(s.number), seconds(s.residence_s.reduce((a, b) => a + (b || 0), 0))]), ...answer.pools.map(p => [p.name + " (tokens)", number(p.in_use) + " in use", number(p.number_waiting) + " wait", ""])]);
  network(answer, limit);
  curves(answer);
  $("caveats").replaceChildren(...answer.caveats.map(text => element("li", text)));
}
function figures(...tables) {
  $("figures").tHead.replaceChildren();
  $("figures").tBodies[0].replaceChildren(...tables.flatMap(([head, ...rows]) => [head, ...rows].map((cells, r) => {
    const made = element("tr");
    cells.forEach((text, i) => { const cell = element(r === 0 || i === 0 ? "th" : "td", text, made, i ? "number" : ""); if (r === 0) cell.scope = "col"; else if (i === 0) cell.scope = "row"; });
    return made;
  })));
}
function curves(answer) {
  const first = model.classes[0], open = "arrival_rate_per_s" in first, points = answer.curve ?? [];
  const x = open ? "arrival rate (1/s)" : first.name + " (number)", now = open ? first.arrival_rate_per_s : first.population;
  const of = key => points.map(p => [p.load, p[key]]);
  const how = answer.curve_approximate ? " (approximate)" : "";
  const think = first.think_time_s ?? 0;
  const bound = (name, value) => ({ name, type: "bound", points: points.filter(p => p.throughput_bounds_per_s).map(p => [p.load, value(p)]) });
  const lines = open ? [] : [bound("lower bound", p => p.throughput_bounds_per_s[0]), bound("upper bound", p => p.throughput_bounds_per_s[1])];
  const slow = open ? [] : [bound("least", p => Math.max(0, p.load / p.throughput_bounds_per_s[1] - think))];
  // Of a study whose load is of the same kind.
  const isTime = /response|time/i.test(measured?.y.label ?? ""), isLoad = (open ? /rate/i : /client/i).test(measured?.x.label ?? "");
  const dots = (isLoad ? measured.series : []).filter(s => s.mark !== "dashed").slice(0, 1).map(s => ({ name: "measured", type: "second", points: s.points.map(p => [p.x, p.y]) }));
  chart($("charts"), { title: "Throughput", x, y: "1/s", now, lines: [...lines, { name: "throughput" + how, points: of("throughput_per_s") }], dots: isTime ? [] : dots });
  chart($("charts"), { title: "Response time", x, y: "", unit: seconds, now, lines: [...slow, { name: "response time" + how, points: of("response_s") }], dots: [] });
}

// ---- the drawing: boxes filled as far as they are busy, the busiest marked; a click goes to its sliders
function network(answer, limit) {
  const names = model.stations.map(s => s.name), across = Math.min(names.length, 3) || 1;
  const [W, cw, ch] = [480, 480 / across, 92], rows = Math.ceil(names.length / across), H = rows * ch + 40;
  const focus = document.activeElement?.getAttribute?.("data-station");
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, "aria-label": "Network of " + names.join(", ") });
  drawn("path", { id: "arrow-head", d: "M0 0L8 4L0 8z", class: "head" }, drawn("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" }, svg));
  const place = i => [(i % across + .5) * cw, 30 + (Math.floor(i / across) + .5) * ch];
  const source = model.classes.some(c => "arrival_rate_per_s" in c) ? "arrivals" : "clients";
  drawn("text", { x: 8, y: 16, class: "soft" }, svg, source + " →");
  drawn("text", { x: W - 8, y: 16, "text-anchor": "end", class: "soft" }, svg, "→ done");
  const at = name => name === "in" ? [26, 20] : name === "out" ? [W - 26, 20] : names.includes(name.split(":")[0]) ? place(names.indexOf(name.split(":")[0])) : null;
  const way = (from, to, share) => {
    const [a, b] = [at(from), at(to)];
    if (!a || !b) return;
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]], far = Math.hypot(dx, dy);
    if (!far) { drawn("path", { d: `M${a[0] + 30} ${a[1] - 26}q34 -26 34 10q0 20 -10 20`, class: "way", "marker-end": "url(#arrow)" }, svg); return; }
    // From edge to edge of the boxes.
    const edge = (name, way) => at(name) && name !== "in" && name !== "out" ? Math.min(Math.abs(62 / (way[0] || 1e-9)), Math.abs(28 / (way[1] || 1e-9))) : 0;
    const unit = [dx / far, dy / far], [s, e] = [edge(from, unit), edge(to, unit)];
    const [mx, my] = [(a[0] + b[0]) / 2 - unit[1] * 8, (a[1] + b[1]) / 2 + unit[0] * 8];
    drawn("path", { d: `M${a[0] + unit[0] * s} ${a[1] + unit[1] * s}Q${mx} ${my} ${b[0] - unit[0] * e} ${b[1] - unit[1] * e}`, class: "way", "marker-end": "url(#arrow)" }, svg);
    if (share != null && share !== 1) drawn("text", { x: mx, y: my, "text-anchor": "middle", class: "soft" }, svg, number(share));
  };
  if (model.routes?.length) for (const route of model.routes) for (const [to, share] of Object.entries(route.to ?? {})) way(route.from, to, share);
  else ["in", ...names].forEach((name, i) => way(name, names[i] ?? "out"));
  for (const pool of model.pools ?? []) {
    const spots = (pool.stations ?? []).map(at).filter(Boolean);
    if (!spots.length) continue;
    const [l, t, r, b] = [Math.min(...spots.map(p => p[0])) - 72, Math.min(...spots.map(p => p[1])) - 38, Math.max(...spots.map(p => p[0])) + 72, Math.max(...spots.map(p => p[1])) + 38];
    drawn("rect", { x: Math.max(1, l), y: t, width: Math.min(W - 1, r) - Math.max(1, l), height: b - t, rx: 10, class: "pool" }, svg);
    drawn("text", { x: Math.max(5, l + 6), y: t - 3, class: "soft" }, svg, `${pool.name}: ${pool.tokens} tokens`);
  }
  for (const [i, station] of model.stations.entries()) {
    const [x, y] = place(i), told = answer.stations[i] ?? { utilization: NaN }, delay = station.type === "delay", busy = Math.min(1, told.utilization || 0);
    const name = station.name.length > 16 ? station.name.slice(0, 15) + "…" : station.name, servers = station.servers ?? 1;
    const load = delay ? "delay" : `${servers} server${servers === 1 ? "" : "s"}, ${isFinite(told.utilization) ? +(100 * told.utilization).toPrecision(3) : "–"} %`;
    const box = drawn("g", { role: "button", tabindex: 0, "data-station": i, class: told === limit ? "limit" : "", "aria-label": `${name} ${load}${told === limit ? ", the busiest" : ""}` }, svg);
    drawn("rect", { x: x - 60, y: y - 26, width: 120, height: 52, rx: delay ? 26 : 6, class: "box" }, box);
    if (!delay) drawn("rect", { x: x - 60, y: y + 20, width: 120 * busy, height: 6, class: "busy" }, box);
    drawn("text", { x, y: y - 6, "text-anchor": "middle" }, box, name);
    drawn("text", { x, y: y + 11, "text-anchor": "middle", class: "soft" }, box, " " + load);
    const go = () => $("stations").children[i]?.querySelector("input[type=range]")?.focus();
    box.addEventListener("click", go);
    box.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); } });
  }
  $("network").replaceChildren(svg);
  if (focus != null) svg.querySelector(`[data-station="${focus}"]`)?.focus();
}

// ---- what can be changed
// A slider and its number. Times and rates go by factors of ten, two up and two down from where they were.
function slide(where, label, value, put, { whole = false, most } = {}) {
  const line = element("div", "", where, "slide"), id = "slide" + ++slide.made;
  element("label", label, line).htmlFor = id;
  const range = element("input", "", line), exact = element("input", "", line);
  range.type = "range";
  range.id = id;
  exact.type = "number";
  exact.step = "any";
  exact.min = 0;
  exact.setAttribute("aria-label", label + ", exact");
  const base = value > 0 ? value : 1;
  [range.min, range.max, range.step] = whole ? [1, most ?? Math.max(16, 4 * value), 1] : [-2, 2, 0.01];
  const tell = v => { range.setAttribute("aria-valuetext", number(v)); };
  const slid = v => whole ? v : Math.log10(v / base);
  range.value = value > 0 ? slid(value) : range.min;
  let now = exact.value = +Number(value ?? 0).toPrecision(6);
  tell(value);
  range.addEventListener("input", () => { const v = whole ? +range.value : +(base * 10 ** range.value).toPrecision(4); exact.value = now = v; tell(v); put(v); changed(); });
  exact.addEventListener("change", () => {
    const v = whole ? Math.round(+exact.value) : +exact.value;
    if (exact.value === "" || !(v >= 0)) { exact.value = now; return; }
    exact.value = now = v;
    if (whole && v > +range.max) range.max = 2 * v;
    range.value = v > 0 ? slid(v) : range.min;
    tell(v);
    put(v);
    changed();
  });
}
slide.made = 0;
function remove(where, what, action) {
  const made = button(where, "Remove", () => { action(); rebuild(); });
  made.setAttribute("aria-label", "Remove " + what);
}
function part(where, thing, names) {
  const made = element("fieldset", "", where), legend = element("legend", "", made), name = element("input", "", legend);
  name.value = thing.name;
  name.size = 14;
  name.setAttribute("aria-label", names.kind + " name");
  name.addEventListener("change", () => { names.rename(thing.name, name.value); thing.name = name.value; rebuild(); });
  return made;
}
const entries = value => value && typeof value === "object" ? Object.entries(value) : [];
function renameIn(table, from, to) {
  if (table && typeof table === "object" && from in table) { table[to] = table[from]; if (to !== from) delete table[from]; }
}
// Who works by keyboard stays at the field, or at the one that took its place.
let last = null;
$("bench").addEventListener("focusin", event => { last = event.target; });
function rebuild() {
  const fields = () => [...$("bench").querySelectorAll("input, select, button")], at = fields().indexOf(last);
  const boxes = ["classes", "stations", "pools", "routes"].map(id => { $(id).replaceChildren(); return $(id); });
  for (const c of model.classes) {
    const made = part(boxes[0], c, { kind: "class", rename: (from, to) => { for (const s of model.stations) for (const key of [...TIMES, "visits"]) renameIn(s[key], from, to); for (const r of model.routes ?? []) if (r.class === from) r.class = to; } });
    const kind = element("select", "", made);
    kind.setAttribute("aria-label", "closed or open");
    for (const text of ["closed: clients that think", "open: arrivals"]) element("option", text, kind);
    kind.selectedIndex = "arrival_rate_per_s" in c ? 1 : 0;
    kind.addEventListener("change", () => {
      for (const key of ["population", "think_time_s", "think_time", "arrival_rate_per_s", "interarrival_time", "batch_size"]) delete c[key];
      if (kind.selectedIndex) c.arrival_rate_per_s = 1; else Object.assign(c, { population: 10, think_time_s: 1 });
      rebuild();
    });
    if ("arrival_rate_per_s" in c) slide(made, "rate (1/s)", c.arrival_rate_per_s, v => c.arrival_rate_per_s = v);
    else {
      slide(made, "clients", c.population, v => c.population = v, { whole: true });
      if (!c.think_time) slide(made, "think time (s)", c.think_time_s ?? 0, v => c.think_time_s = v);
    }
    if (several()) remove(made, c.name, () => { model.classes = model.classes.filter(other => other !== c); for (const s of model.stations) for (const key of TIMES) if (s[key] && typeof s[key] === "object") delete s[key][c.name]; model.routes = (model.routes ?? []).filter(r => r.class !== c.name); if (!several()) for (const r of model.routes) delete r.class; });
  }
  for (const s of model.stations) {
    const made = part(boxes[1], s, { kind: "station", rename: (from, to) => { for (const r of model.routes ?? []) { if (r.from === from) r.from = to; renameIn(r.to, from, to); } for (const p of model.pools ?? []) p.stations = p.stations.map(name => name === from ? to : name); } });
    if (s.type !== "delay") slide(made, "servers", s.servers ?? 1, v => s.servers = v, { whole: true });
    const key = timeKey(s), label = { service_time_s: "service time (s)", service_demand_s: "demand (s)", service_rate_per_s: "rate (1/s)" }[key];
    if (key && typeof s[key] === "number") slide(made, label, s[key], v => s[key] = v);
    for (const [name, value] of entries(s[key])) slide(made, name + " " + label, value, v => s[key][name] = v);
    if (typeof s.visits === "number") slide(made, "visits", s.visits, v => s.visits = v);
    for (const [name, value] of entries(s.visits)) slide(made, name + " visits", value, v => s.visits[name] = v);
    remove(made, s.name, () => {
      model.stations = model.stations.filter(other => other !== s);
      model.pools = (model.pools ?? []).filter(p => (p.stations = p.stations.filter(name => name !== s.name)).length);
      // Whoever came here goes where the way led from here.
      for (const r of model.routes ?? []) if (r.from !== s.name && s.name in r.to) {
        const share = r.to[s.name], on = model.routes.find(next => next.from === s.name && next.class === r.class)?.to ?? { out: 1 };
        delete r.to[s.name];
        for (const [to, p] of Object.entries(on)) if (to !== s.name) r.to[to] = (r.to[to] ?? 0) + share * p;
      }
      model.routes = (model.routes ?? []).filter(r => r.from !== s.name);
    });
  }
  for (const p of model.pools ?? []) {
    const made = part(boxes[2], p, { kind: "pool", rename: () => {} });
    slide(made, "tokens", p.tokens, v => p.tokens = v, { whole: true });
    const held = element("input", "", element("label", "held at ", made));
    held.value = p.stations.join(", ");
    held.addEventListener("change", () => { p.stations = held.value.split(",").map(name => name.trim()).filter(Boolean); rebuild(); });
    remove(made, p.name, () => { model.pools = model.pools.filter(other => other !== p); });
  }
  for (const r of model.routes ?? []) routeOf(r, boxes[3]);
  if (at >= 0) setTimeout(() => { if (document.activeElement === document.body) fields()[Math.min(at, fields().length - 1)]?.focus(); }, 0);
  changed();
}
function routeOf(r, where) {
  const line = element("div", "", where, "routes");
  const field = (label, value, size, put) => {
    const made = element("input", "", line);
    made.value = value;
    made.size = size;
    made.setAttribute("aria-label", label);
    made.addEventListener("change", () => { put(made.value.trim()); rebuild(); });
  };
  if (several()) field("route: class", r.class ?? "", 8, v => { if (v) r.class = v; else delete r.class; });
  field("route: from", r.from, 9, v => r.from = v);
  line.append(" → ");
  field("route: to, with probabilities", Object.entries(r.to).map(([to, p]) => p + " " + to).join(", "), 22, v => {
    r.to = Object.fromEntries(v.split(",").map(text => text.trim().match(/^([\d.eE+-]+)\s+(.+)$/)).filter(Boolean).map(found => [found[2], +found[1]]));
  });
  remove(line, "the route from " + r.from, () => { model.routes = model.routes.filter(other => other !== r); });
}
const free = (list, name) => { let i = 1; while (list.some(x => x.name === `${name} ${i}`)) i++; return `${name} ${i}`; };
on("add-station", () => { model.stations.push({ name: free(model.stations, "station"), servers: 1, service_time_s: several() ? Object.fromEntries(model.classes.map(c => [c.name, 0.01])) : 0.01 }); rebuild(); });
on("add-class", () => {
  const name = free(model.classes, "class");
  for (const s of model.stations) { const key = timeKey(s); if (typeof s[key] === "number") s[key] = Object.fromEntries(model.classes.map(c => [c.name, s[key]])); if (key) s[key][name] = Object.values(s[key])[0]; }
  const first = model.classes[0].name;
  for (const r of model.routes ?? []) r.class ??= first;
  model.routes?.push(...model.routes.filter(r => r.class === first).map(r => ({ ...structuredClone(r), class: name })));
  model.classes.push({ name, population: 5, think_time_s: 1 });
  rebuild();
});
on("add-pool", () => { (model.pools ??= []).push({ name: free(model.pools ?? [], "pool"), tokens: 10, stations: model.stations.slice(0, 1).map(s => s.name) }); rebuild(); });
on("add-route", () => {
  const names = model.stations.map(s => s.name);
  if (model.routes?.length) model.routes.push({ from: names[0], to: { out: 1 } });
  else model.routes = model.classes.flatMap(c => ["in", ...names].map((from, i) => ({ ...(several() && { class: c.name }), from, to: { [names[i] ?? "out"]: 1 } })));
  for (const s of model.stations) delete s.visits;
  rebuild();
});

// ---- files, and the simulation, whose intervals narrow from one answer to the next
$("model-file").addEventListener("change", tried(async () => {
  const value = $("model-file").value, [, study, name] = value.match(/^(.*)\|(.*)$/s) ?? [null, null, value];
  if (modelDirty() && !confirm("The model is not saved. Drop the changes?")) { $("model-file").value = modelChosen; return; }
  modelChosen = value;
  measured = null;
  if (!name) { taken(FRESH); $("model-name").value = ""; modelVersion = ""; return; }
  const read = await call("GET", "file?name=" + encodeURIComponent(name) + (study == null ? "" : "&study=" + encodeURIComponent(study)));
  const { model: told, notes } = await call("POST", "model", { name, text: read.text });
  modelVersion = study == null ? read.version : "";
  modelRead = $("model-name").value = study == null ? name : "models/" + name;
  measured = study == null ? null : await call("GET", "measured?id=" + encodeURIComponent(study)).catch(() => null);
  taken(told);
  $("model-problem").textContent = notes.join("\n");
}, "model-problem"));
on("model-save", async () => {
  const name = $("model-name").value.replace(/\.(jmva|jsimg|jsim|json)$/, ".toml");
  const { text } = await call("POST", "model", { name: "model.json", text: JSON.stringify(model) });
  modelVersion = (await call("PUT", "file", { name, text, version: name === modelRead ? modelVersion : "" })).version;
  modelRead = modelChosen = $("model-name").value = name;
  modelSaved = JSON.stringify(model);
  await files();
  $("model-file").value = name;
  $("solved").textContent = "saved as " + name;
}, "model-problem");
on("simulate", async () => {
  const mine = asked;
  for (const width of [0.2, 0.1, 0.05, 0.02]) {
    const { simulation } = await call("POST", "simulate", { model, relative_half_width: width });
    if (mine !== asked) return; // the model is another by now
    const around = (value, unit) => value ? unit(value.center) + (value.half_width == null ? "" : " ± " + unit(value.half_width)) : "–";
    $("solved").textContent = "simulated: " + simulation.classes.map(c => `${c.name} ${around(c.throughput_per_s, number)} /s, response ${around(c.response_time_mean_s, seconds)}`).join("; ");
  }
}, "model-problem");
taken(FRESH);
