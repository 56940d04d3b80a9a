"use strict";
// The token comes behind the # of the address, which browsers do not send, and leaves it at once.
const token = location.hash.slice(1) || sessionStorage.getItem("token") || "";
sessionStorage.setItem("token", token);
history.replaceState(null, "", location.pathname);

const $ = id => document.getElementById(id);
const MOST_ROWS = 500, LOOK_MS = 5000, WATCH_MS = 1000, TYPING_MS = 250;

async function call(method, path, body) {
  let response;
  try {
    response = await fetch("/api/" + path, { method, headers: { authorization: "Bearer " + token, "content-type": "application/json" }, body: body && JSON.stringify(body) });
  } catch {
    throw new Error("The console does not answer; was it stopped?");
  }
  const answer = await response.json().catch(() => ({ error: "no JSON" }));
  if (!response.ok) throw Object.assign(new Error(answer.error || response.statusText), { status: response.status });
  return answer;
}
// Runs what a person asked for, and shows what went wrong with it.
const tried = (action, where = "problem") => async (...given) => {
  try { $(where).textContent = ""; await action(...given); } catch (error) { $(where).textContent = error.message; }
};
// A button is busy until it is done, and asks for nothing twice.
function pressed(made, action, where) {
  const act = tried(action, where);
  made.addEventListener("click", async () => {
    if (made.ariaBusy === "true") return;
    made.ariaBusy = "true";
    await act();
    made.ariaBusy = null;
  });
  return made;
}
const on = (id, action, where) => pressed($(id), action, where);
function soon(action, ms) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(action, ms); };
}

function button(where, text, action, type) {
  return pressed(element("button", text, where, type), action);
}
// ---- tabs: one is shown; arrows go from one to the next.
const TABS = ["studies", "run", "bench"];
let tab = "studies";
function show(name) {
  tab = name;
  for (const other of TABS) {
    const chosen = other === name;
    $(other).classList.toggle("hidden", !chosen);
    $("tab-" + other).setAttribute("aria-selected", chosen);
    $("tab-" + other).tabIndex = chosen ? 0 : -1;
  }
  if (name !== "studies") files().catch(() => {});
  look();
}
for (const [i, name] of TABS.entries()) {
  $("tab-" + name).addEventListener("click", () => show(name));
  $("tab-" + name).addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: 2 }[event.key];
    if (!step) return;
    const next = TABS[(i + step) % TABS.length];
    show(next);
    $("tab-" + next).focus();
  });
}

// ---- studies
const COLUMNS = [["", null], ["Study", s => s.name], ["Date", s => s.created_unix_ms ?? 0], ["System", s => s.system ?? ""], ["Answer", s => s.answer ?? s.problem ?? ""], ["Trust", s => s.trust?.level ?? ""], ["Runs", s => s.done ?? 0], ["", null]];
let all = { studies: [] }, order = [2, -1];
const chosen = new Set();
const levels = s => (s.factors ?? []).map(([factor, list]) => factor + "=" + list.join(", "));
const words = s => [s.name, s.title, s.id, s.system, s.protocol, s.answer, s.problem, s.revision, s.trust?.level, ...levels(s), ...(s.factors ?? []).flatMap(([f, list]) => list.map(l => f + "=" + l))].join(" ").toLowerCase();

async function studies() {
  all = await call("GET", "studies");
  $("where").textContent = all.folder + ": " + all.studies.length + (all.all ? "" : " of more") + (all.studies.length === 1 ? " study" : " studies");
  for (const id of chosen) if (!all.studies.some(s => s.id === id)) chosen.delete(id);
  table();
}
// Studies of one name are told apart by their folders.
const called = s => s.name && s.id !== s.name && s.id !== "." ? `${s.name} (${s.id})` : s.name || s.id;
let told = "";
function table() {
  const wanted = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [column, way] = order, key = COLUMNS[column][1];
  const rows = all.studies.filter(s => { const text = words(s); return wanted.every(word => text.includes(word)); });
  rows.sort((a, b) => { const [x, y] = [key(a), key(b)]; return way * (x < y ? -1 : x > y ? 1 : 0) || (a.id < b.id ? -1 : 1); });
  // What is the same is left alone: a focus, a text that is being marked.
  const now = JSON.stringify([rows, order]);
  if (now === told) return;
  told = now;
  const focused = document.activeElement?.dataset?.key;
  const head = element("tr");
  for (const [i, [name, sorted]] of COLUMNS.entries()) {
    const cell = element(sorted ? "th" : "td", "", head);
    if (!sorted) continue;
    cell.scope = "col";
    cell.setAttribute("aria-sort", i !== column ? "none" : way > 0 ? "ascending" : "descending");
    const by = button(cell, name + (i !== column ? "" : way > 0 ? " ▲" : " ▼"), () => { order = [i, i === column ? -way : 1]; table(); });
    by.dataset.key = "by" + name;
  }
  $("list").tHead.replaceChildren(head);
  $("list").tBodies[0].replaceChildren(...rows.slice(0, MOST_ROWS).map(row));
  $("list").caption.textContent = rows.length > MOST_ROWS ? `The first ${MOST_ROWS} of ${rows.length}: search for others` : "Studies in the folder";
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  choice();
}
function row(s) {
  const made = element("tr");
  const cells = COLUMNS.map(([label]) => { const cell = element("td", "", made); cell.dataset.label = label === "Study" ? "" : label; return cell; });
  if (s.done > 0) {
    const box = element("input", "", cells[0]);
    box.type = "checkbox";
    box.checked = chosen.has(s.id);
    box.dataset.key = "box" + s.id;
    box.setAttribute("aria-label", "choose " + called(s));
    box.addEventListener("change", () => { if (box.checked) chosen.add(s.id); else chosen.delete(s.id); choice(); });
  }
  if (s.id != null && !s.problem) button(cells[1], s.name || s.id, () => report(s, false), "link").dataset.key = "open" + s.id;
  else element("b", s.name, cells[1]);
  for (const text of [s.title, s.id === s.name ? "" : s.id, levels(s).join("  ")]) if (text) { element("br", "", cells[1]); element("small", text, cells[1]); }
  cells[2].textContent = time(s.created_unix_ms);
  cells[2].className = "short";
  cells[3].textContent = s.system ?? "";
  cells[3].className = "short";
  cells[4].textContent = s.problem ?? s.answer ?? "";
  cells[4].className = s.problem ? "bad" : "";
  if (s.trust) element("span", { good: "can be trusted", doubt: "with care", bad: "do not use" }[s.trust.level] ?? s.trust.level, cells[5], s.trust.level).title = s.trust.why;
  if (s.done != null) cells[6].textContent = s.done + (s.planned ? " of " + s.planned : "") + (s.failed ? ", " + s.failed + " failed" : "") + (s.rejected ? ", " + s.rejected + " rejected" : "");
  if (s.done != null && s.planned > s.done) button(cells[7], "Resume", () => start({ out: s.id, retry_failed: true })).dataset.key = "resume" + s.id;
  return made;
}
function choice() {
  $("compare").disabled = chosen.size < 2;
  $("trend").disabled = chosen.size < 6;
  $("chosen").textContent = chosen.size ? chosen.size + " chosen" : "Choose two or more to compare, six or more for a trend.";
}
// The oldest first: it is the baseline.
const inOrder = () => all.studies.filter(s => chosen.has(s.id)).sort((a, b) => a.created_unix_ms - b.created_unix_ms);
const link = page => page.split("/").map(encodeURIComponent).join("/");
function panel(title, page) {
  $("shown").classList.remove("hidden");
  $("shown-title").textContent = title;
  $("changes").replaceChildren();
  $("frame").classList.toggle("hidden", !page);
  $("frame").title = title;
  $("frame").src = page ? link(page) : "about:blank";
  $("shown-title").focus();
  $("shown").scrollIntoView();
}
let reported = null;
async function report(s, again) {
  const { page } = await call(again || !s.report ? "PUT" : "POST", "report", { id: s.id });
  reported = s;
  $("again").classList.toggle("hidden", s.done == null);
  panel("Report of " + called(s), page);
}
on("again", () => report(reported, true));
on("close", () => { $("frame").src = "about:blank"; $("shown").classList.add("hidden"); (document.querySelector(`[data-key="${CSS.escape("open" + reported?.id)}"]`) ?? $("search")).focus(); });
on("compare", async () => {
  const sets = inOrder();
  const { page, verdict } = await call("POST", "compare", { ids: sets.map(s => s.id), bound: $("bound").value });
  $("again").classList.add("hidden");
  panel("Verdict: " + verdict + ", against " + sets[0].id, page);
});
on("trend", async () => {
  const sets = inOrder();
  const { trends, left_out } = await call("POST", "trend", { ids: sets.map(s => s.id), bound: $("bound").value });
  $("again").classList.add("hidden");
  panel("Trend over " + sets.length + " studies", null);
  const of = new Map(sets.map(s => [all.folder + (s.id === "." ? "" : "/" + s.id), s]));
  for (const trend of trends) {
    const made = element("section", "", $("changes")), name = trend.metric + ", " + (trend.configuration || "all runs");
    element("h3", name, made);
    const points = trend.medians.map((value, i) => [i + 1, value]);
    chart(made, { title: name, x: "studies in order of time", y: "median of the runs", lines: [{ name: "", points }], dots: [{ points }], marks: trend.changes.map(change => change.at + .5) });
    if (!trend.changes.length) element("p", "No significant change.", made, "soft");
    const list = element("ul", "", made);
    for (const change of trend.changes) {
      const s = of.get(change.set), percent = ratio => number(100 * (ratio - 1)) + " %", ends = change.ratio.interval;
      const text = `${change.worse ? "worse" : "better"} from ${s?.id ?? change.set} on: ${percent(change.ratio.center)}` + (ends ? ` [${percent(ends.low)}, ${percent(ends.high)}]` : "") + ` (p ${number(change.p_value)})`;
      const item = element("li", text, list, change.beyond_bound ? change.worse ? "bad" : "good" : "");
      commit(s?.revision, item);
    }
  }
  for (const text of left_out) element("p", text, $("changes"), "soft");
});
function commit(revision, where) {
  if (typeof revision !== "string") return;
  const plain = revision.split(" ")[0];
  where.append(", commit ");
  if (!all.commits) { element("code", plain.slice(0, 12), where); return; }
  const made = element("a", plain.slice(0, 12), where);
  made.href = all.commits.replace("{}", encodeURIComponent(plain));
  made.rel = "noreferrer noopener";
  made.target = "_blank";
}
$("search").addEventListener("input", table);

// ---- a study file, and what it would run
let version = "", saved = "", planned = null, sections = {};
const dirty = () => $("text").value !== saved;
addEventListener("beforeunload", event => { if (dirty() || modelDirty()) event.preventDefault(); });
async function files() {
  const { files } = await call("GET", "files");
  for (const [id, models] of [["file", false], ["model-file", true]]) {
    const select = $(id), kept = select.value;
    const isModel = name => /(^|\/)models\//.test(name) || !name.endsWith(".toml");
    const own = files.filter(name => isModel(name) === models).map(name => [name, name]);
    const fitted = models ? all.studies.flatMap(s => (s.models ?? []).map(name => [`${s.id}|${name}`, `${called(s)}: ${name}`])) : [];
    select.replaceChildren(select.options[0], ...[...own, ...fitted].map(([value, text]) => { const option = element("option", text); option.value = value; return option; }));
    select.value = kept;
    if (!select.value) select.value = "";
  }
}
$("file").addEventListener("change", tried(async () => {
  if (dirty() && !confirm("The text is not saved. Drop the changes?")) { $("file").value = $("name").value; return; }
  const name = $("file").value;
  const read = name ? await call("GET", "file?name=" + encodeURIComponent(name)) : { text: "", version: "" };
  version = read.version;
  $("name").value = name;
  $("text").value = saved = read.text;
  $("out").value = "";
  await plan();
}));
async function save() {
  const [name, text] = [$("name").value, $("text").value];
  if (name !== $("file").value) version = "";
  version = (await call("PUT", "file", { name, text, version })).version;
  saved = text;
  await files();
  $("file").value = name;
}
on("save", save);
let plans = 0;
async function plan() {
  const mine = ++plans;
  const answer = await call("POST", "plan", { text: $("text").value, toy: $("toy").checked });
  if (mine !== plans) return; // typed on meanwhile
  planned = answer;
  $("to-line").classList.toggle("hidden", !answer.line);
  $("plan").className = answer.line ? "problem" : "good";
  const most = answer.exact ? "" : "at most ";
  $("plan").textContent = answer.line ? `line ${answer.line}: ${answer.what}` : `${most}${answer.runs} runs, ${answer.at_most ? "at most" : "about"} ${lasting(answer.seconds)} of load: ${answer.title || answer.name}`;
  if (!answer.line && !$("out").value) $("out").placeholder = answer.name;
  $("order").replaceChildren(...(answer.order ?? []).map(text => element("li", text || "the only configuration")));
}
on("to-line", () => {
  const lines = $("text").value.split("\n"), from = lines.slice(0, planned.line - 1).join("\n").length + (planned.line > 1 ? 1 : 0);
  $("text").focus();
  $("text").setSelectionRange(from, from + (lines[planned.line - 1] ?? "").length);
  $("text").scrollTop = (planned.line - 6) * 19;
});
const planSoon = soon(() => plan().catch(error => $("problem").textContent = error.message), TYPING_MS);
$("toy").addEventListener("change", planSoon);

// Keys by table with their words, from the schema; tables of a kind together.
function keysOf(schema, name = "", found = {}) {
  const here = found[name] ??= {};
  for (const part of [schema, ...(schema.anyOf ?? [])]) for (const [key, value] of Object.entries(part.properties ?? {})) {
    const known = here[key] ??= { help: value.description ?? "", words: new Set() };
    for (const one of [value, ...(value.anyOf ?? [])]) one.enum?.forEach(word => known.words.add(word));
    const inner = value.items?.properties ? value.items : value;
    if (inner.properties || inner.anyOf) keysOf(inner, name ? name + "." + key : key, found);
  }
  return found;
}
// What could stand at the cursor, its help, and what is missing of it.
function fitting() {
  const before = $("text").value.slice(0, $("text").selectionStart).split("\n"), line = before.at(-1);
  const header = before.findLast(line => /^\s*\[/.test(line))?.match(/\[+\s*([\w.]+)/)?.[1] ?? "", keys = sections[header] ?? {};
  const begun = (all, typed) => all.filter(text => text.startsWith(typed) && text !== typed).slice(0, 12);
  const typed = line.match(/^\s*([a-z_]*)$/)?.[1];
  if (typed !== undefined) return begun(Object.keys(keys), typed).map(key => [key, keys[key].help, key.slice(typed.length) + " = "]);
  const [, key, quote, word] = line.match(/^\s*([a-z_]+)\s*=\s*(?:(")([\w-]*))?$/) ?? [];
  return begun([...(keys[key]?.words ?? [])], word ?? "").map(text => [text, "", (quote ? "" : '"') + text.slice((word ?? "").length) + '"']);
}
function complete(rest) {
  const text = $("text"), at = text.selectionStart;
  text.setRangeText(rest, at, at, "end");
  text.focus();
  typing();
}
function typing() {
  $("keys").replaceChildren(...fitting().map(([text, help, rest]) => { const made = button(null, text, () => complete(rest)); made.title = help; return made; }));
  planSoon();
}
$("text").addEventListener("input", typing);
$("text").addEventListener("click", typing);
$("text").addEventListener("keydown", event => {
  if (event.ctrlKey && event.code === "Space") { event.preventDefault(); const [first] = fitting(); if (first) complete(first[2]); }
});

// ---- runs
async function start(what) {
  await call("PUT", "runs", what);
  show("run");
}
on("start", async () => {
  if (dirty() || !$("file").value) await save();
  await plan();
  if (planned.line) throw new Error("The study file has a mistake in line " + planned.line + ".");
  await start({ file: $("file").value, out: $("out").value || planned.name, toy: $("toy").checked });
});
let running = false;
async function runs() {
  const { runs } = await call("GET", "runs");
  $("no-runs").classList.toggle("hidden", runs.length > 0);
  running = runs.some(job => job.state === "running" || job.state === "stopping");
  const known = new Map([...$("jobs").children].map(made => [made.dataset.number, made]));
  for (const job of [...runs].reverse()) {
    const made = known.get(String(job.number)) ?? card(job);
    known.delete(String(job.number));
    const part = name => made.querySelector("." + name);
    const over = job.state === "ended" || job.state === "stopped", stopped = document.activeElement === part("stop") && over;
    part("state").textContent = job.state !== "ended" ? job.state : job.code === 0 ? "done" : `ended with code ${job.code ?? "–"}`;
    part("levels").textContent = !over ? `run ${job.runs_ended + 1} of ${job.runs ?? "…"}: ${job.levels}` : job.state === "ended" && job.code ? job.lines.at(-1) ?? "" : "";
    part("done").max = job.runs || 1;
    part("done").value = job.runs_ended;
    part("stop").classList.toggle("hidden", over);
    part("stop").textContent = job.state === "stopping" ? "Kill" : "Stop";
    part("resume").classList.toggle("hidden", !over || job.code === 0);
    part("report").classList.toggle("hidden", !over);
    if (stopped) part("report").focus();
    part("lines").textContent = job.lines.join("\n");
    if (job.seconds.length > 1) liveSeconds(part("live"), job.seconds);
  }
  for (const gone of known.values()) gone.remove();
}
function card(job) {
  const made = element("section", "", null, "panel");
  made.dataset.number = job.number;
  const bar = element("div", "", made, "bar");
  element("h2", job.out + (job.toy ? " (toy)" : ""), bar);
  element("span", "", bar, "state soft").setAttribute("role", "status");
  button(bar, "Stop", async () => { await call("DELETE", "runs/" + job.number); await runs(); }, "stop");
  button(bar, "Resume", () => start({ file: job.file, out: job.out, toy: job.toy, retry_failed: true }), "resume");
  button(bar, "Report", async () => { show("studies"); await studies(); await report(all.studies.find(s => s.id === job.out) ?? { id: job.out, name: job.out, done: 1 }, false); }, "report");
  element("progress", "", made, "done").setAttribute("aria-label", "runs that ended");
  element("p", "", made, "levels soft");
  element("div", "", made, "live");
  const details = element("details", "", made);
  element("summary", "What it said", details);
  element("pre", "", details, "lines").tabIndex = 0;
  $("jobs").prepend(made);
  return made;
}

// ---- looks, as often as what is shown changes; none while nobody sees it
let looking = null;
async function look() {
  clearTimeout(looking);
  if (!document.hidden) {
    try {
      if (tab === "run" || running) await runs();
      if (tab === "studies") await studies();
      if ($("problem").dataset.look) { $("problem").textContent = ""; delete $("problem").dataset.look; }
    } catch (error) {
      $("problem").textContent = error.message;
      $("problem").dataset.look = "1";
    }
  }
  clearTimeout(looking);
  looking = setTimeout(look, running && tab === "run" ? WATCH_MS : LOOK_MS);
}
document.addEventListener("visibilitychange", look);
tried(async () => {
  await studies();
  await files();
  sections = keysOf(await call("GET", "schema"));
})().then(look);
