"use strict";
// The token comes behind the # of the address, which browsers do not send, and leaves it at once.
const token = location.hash.slice(1) || sessionStorage.getItem("token") || "";
sessionStorage.setItem("token", token);
history.replaceState(null, "", location.pathname);

const $ = id => document.getElementById(id);
const FIELDS = ["queue", "sender", "receiver"];
// Between two looks at least so long, and so many times as long as a look takes: a page that is left
// open costs the queue little even where a look is slow.
const PAUSE_MS = 2000, PATIENCE = 20, TYPING_MS = 300, ROWS = 50;

let tab = "queues";
let trail = [0];       // where the pages up to this one begin
let next = null;       // where the next one does
let spanned = false;   // found by several looks: too much to repeat every two seconds
let pending = null;    // the look under way
let timer = 0, typing = 0, shown = "", most = 2000;

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch("/api/" + path, { ...options, headers: { authorization: "Bearer " + token, "content-type": "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The queue does not answer; retrying.");
  }
  const answer = await response.json().catch(() => ({ error: "no JSON" }));
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

const count = (n, limit) => n.toLocaleString() + (n >= limit ? "+" : "");
const about = (n, exact, what) => (exact ? "" : "about ") + n.toLocaleString() + " " + what + (n === 1 ? "" : "s");
// ISO 8601, to the second, in UTC: the same on every machine, and sortable.
const time = ms => ms == null ? "" : new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");
const person = (id, name) => id == null ? "anyone" : (name ?? "forgotten") + " (" + id + ")";
// What a field takes for this one: its name, unless that is no single line or reads like an id.
const handle = (id, name) => /[\r\n]|^\d+$/.test(name) ? String(id) : name;
function age(ms) {
  for (const [unit, size] of [["days", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]])
    if (ms >= size) return (ms / size).toFixed(unit === "days" || ms < 10 * size ? 1 : 0) + " " + unit;
  return ms + " ms";
}

function element(kind, text, where, type) {
  const made = document.createElement(kind);
  made.textContent = text ?? "";
  if (type) made.className = type;
  where.append(made);
  return made;
}
function button(where, text, type, key, action) {
  const made = element("button", text, where, ("act " + type).trim());
  made.dataset.key = text + key;
  made.addEventListener("click", action);
}

// What stands behind "More": what cannot be undone, and what is rare.
function menu(where, entries) {
  const details = document.createElement("details");
  details.className = "menu";
  element("summary", "More", details).setAttribute("aria-label", "More actions");
  const list = element("div", "", details, "entries");
  for (const [text, type, key, action] of entries) button(list, text, type, key, () => { details.open = false; action(); });
  details.addEventListener("keydown", event => { if (event.key === "Escape") { details.open = false; details.firstChild.focus(); } });
  where.append(details);
}

// Each queue's last looks, for its charts: [when, waiting, sent, taken].
const looks = new Map();
const LOOKS = 90, WIDE = 120, HIGH = 28;
function remember(rows) {
  const now = performance.now();
  for (const q of rows) {
    const mine = looks.get(q.queue_id) ?? [];
    mine.push([now, q.waiting, q.sent, q.taken]);
    if (mine.length > LOOKS) mine.shift();
    looks.set(q.queue_id, mine);
  }
}
function line(svg, points, top, type) {
  if (points.length < 2) return;
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const at = ([x, y]) => ((x - first) / (last - first || 1) * WIDE).toFixed(1) + "," + (HIGH - 1 - y / (top || 1) * (HIGH - 2)).toFixed(1);
  const made = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  made.setAttribute("points", points.map(at).join(" "));
  made.setAttribute("class", type);
  svg.append(made);
}
function chart(where, label, series) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 " + WIDE + " " + HIGH);
  svg.setAttribute("class", "chart");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = label;
  svg.append(title);
  const top = Math.max(1, ...series.flatMap(([points]) => points.map(point => point[1])));
  for (const [points, type] of series) line(svg, points, top, type);
  where.append(svg);
}
function charts(where, q) {
  const mine = looks.get(q.queue_id) ?? [];
  const rates = field => mine.slice(1).map((look, i) => [look[0], Math.max(0, look[field] - mine[i][field]) / Math.max(0.001, (look[0] - mine[i][0]) / 1000)]);
  const [into, out] = [rates(2), rates(3)];
  const now = points => points.length ? points[points.length - 1][1].toFixed(1) : "0.0";
  chart(where, "waiting: " + count(q.waiting, q.counted_up_to), [[mine.map(look => [look[0], look[1]]), "depth"]]);
  chart(where, "through this middleware: " + now(into) + "/s sent, " + now(out) + "/s taken", [[into, "in"], [out, "out"]]);
  element("small", now(into) + "/s in, " + now(out) + "/s out", where);
}

const columns = {
  queues: [["Id", "number"], ["Name"], ["Waiting", "number"], ["Leased", "number"], ["Delayed", "number"], ["Oldest", "number"], ["Depth, rate"], ["Dead letters"], ["Retention"], [""]],
  clients: [["Id", "number"], ["Name"], ["Present"], ["Last hello"], [""]],
  messages: [["Id", "number"], ["Queue"], ["From"], ["To"], ["Priority", "number"], ["Sent"], ["State"], ["Content"], [""]],
};
const fill = {
  queues(row, q) {
    element("td", q.queue_id, row, "number");
    element("td", q.name + (q.paused ? " (paused)" : ""), row);
    for (const key of ["waiting", "leased", "delayed"]) element("td", count(q[key], q.counted_up_to), row, "number");
    element("td", q.waiting ? age(q.oldest_age_ms) : "", row, "number");
    charts(element("td", "", row, "charts"), q);
    element("td", q.max_deliveries ? "after " + q.max_deliveries + (q.dead_letter_queue_id ? " to queue " + q.dead_letter_queue_id : ", dropped") : "", row);
    element("td", q.retention_ms ? age(q.retention_ms) : "", row);
    const acts = element("td", "", row, "acts");
    button(acts, "Messages", "", q.queue_id, () => only({ queue: handle(q.queue_id, q.name) }));
    menu(acts, [
      [q.paused ? "Resume" : "Pause…", "", q.queue_id, () => q.paused
        ? act("queues/" + q.queue_id + "/pause", { paused: false })
        : sure("Pause “" + q.name + "”? It accepts messages but delivers none until it is resumed.", "queues/" + q.queue_id + "/pause", "POST", { paused: true })],
      ["Redrive dead letters…", "", q.queue_id, () => sure("Move the dead letters that wait in “" + q.name + "” back to the queues where they died?", "queues/" + q.queue_id + "/redrive", "POST")],
      ["Purge…", "bad", q.queue_id, () => sure("Drop every message that waits in “" + q.name + "”? Leased and delayed ones stay. This cannot be undone.", "queues/" + q.queue_id + "/purge", "POST")],
      ["Delete…", "bad", q.queue_id, () => sure("Delete the queue “" + q.name + "” and all its messages? This cannot be undone.", "queues/" + q.queue_id + "?with_messages=true", "DELETE")],
    ]);
  },
  clients(row, c) {
    element("td", c.client_id, row, "number");
    element("td", c.name, row);
    element("td", c.present ? "yes" : "said goodbye", row);
    element("td", time(c.hello_at_ms), row);
    const acts = element("td", "", row, "acts");
    button(acts, "From it", "", c.client_id, () => only({ sender: handle(c.client_id, c.name) }));
    button(acts, "To it", "", c.client_id, () => only({ receiver: handle(c.client_id, c.name) }));
  },
  messages(row, m) {
    element("td", m.message_id, row, "number");
    element("td", m.queue, row);
    element("td", person(m.sender_id, m.sender), row);
    element("td", person(m.receiver_id, m.receiver), row);
    element("td", m.priority, row, "number");
    element("td", time(m.sent_at_ms), row);
    element("td", m.leased ? "leased until " + time(m.due_at_ms) : m.due_at_ms ? "delayed until " + time(m.due_at_ms) : "waiting", row, m.due_at_ms ? "" : "short");
    element("td", shortly(m), row, "content");
    button(element("td", "", row, "acts"), "Open", "", m.message_id, () => open(m.message_id));
  },
};

const shortly = m => (m.dead_reason ? "[dead: " + m.dead_reason + "] " : "") + (m.bytes != null ? m.bytes.toLocaleString() + " bytes of data" : m.content + (m.characters > 200 ? "…" : ""));

// Looks along the ids until something is found, and shows it. `live`: the same page again.
async function load(live) {
  clearTimeout(timer);
  pending?.abort();
  const mine = pending = new AbortController();
  const began = performance.now();
  const query = new URLSearchParams({ search: $("search").value });
  if (tab === "messages") {
    for (const key of FIELDS) query.set(key, $(key).value.trim());
    query.set("newest_first", $("newest").checked);
  }
  try {
    const all = await call("overview", { signal: mine.signal });
    let from = trail[trail.length - 1], rows = [], looked = 0, last;
    do {
      query.set("after", from);
      const page = await call(tab + "?" + query, { signal: mine.signal });
      rows = rows.concat(page.rows).slice(0, ROWS);
      looked += 1;
      next = page.next;
      // More than one page: the next one begins behind the last row that is shown.
      if (rows.length === ROWS && page.rows.length) next = rows[ROWS - 1][tab === "messages" ? "message_id" : tab === "clients" ? "client_id" : "queue_id"];
      if (rows.length < ROWS && next != null) {
        $("halt").classList.remove("hidden");
        $("where").textContent = "searching: " + rows.length + " found so far, up to id " + next.toLocaleString();
        render(rows, "Nothing found so far…");
        from = last = next;
      }
    } while (rows.length < ROWS && next != null && !(live && looked));
    spanned = looked > 1;
    most = all.content_characters;
    if (tab === "queues") remember(rows);
    render(rows);
    $("where").textContent = "";
    $("overview").textContent = [about(all.queues, all.queues_exact, "queue"), about(all.clients, all.clients_exact, "client"), about(all.messages, all.messages_exact, "message"), all.requests_waiting.toLocaleString() + " requests wait"].join(" · ");
    $("problem").textContent = "";
  } catch (error) {
    if (error.name === "AbortError") return;
    $("problem").textContent = error.message;
    $("where").textContent = "";
  }
  if (mine !== pending) return;
  pending = null;
  $("halt").classList.add("hidden");
  controls();
  timer = setTimeout(again, Math.max(PAUSE_MS, PATIENCE * (performance.now() - began)));
}
function again() {
  const selection = getSelection(), reading = !selection.isCollapsed && $("table").contains(selection.anchorNode);
  if ($("live").checked && !document.hidden && !spanned && !reading && !document.querySelector("dialog[open], details[open]")) load(true);
  else timer = setTimeout(again, PAUSE_MS);
}
function controls() {
  $("next").disabled = next == null;
  $("previous").disabled = $("first").disabled = trail.length < 2;
}
function render(rows, nothing = "None.") {
  const text = tab + nothing + JSON.stringify(rows, (key, value) => key === "sent" || key === "taken" ? undefined : value);
  if (text === shown) {
    // Charts move on while nothing else changes.
    if (tab === "queues") rows.forEach((q, i) => { const cell = $("table").querySelectorAll("td.charts")[i]; cell.replaceChildren(); charts(cell, q); });
    return;
  }
  shown = text;
  const focused = $("table").contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const table = document.createDocumentFragment();
  element("caption", rows.length ? "" : nothing, table);
  const head = element("tr", "", element("thead", "", table));
  for (const [name, type] of columns[tab]) element("th", name, head, type).scope = "col";
  const body = element("tbody", "", table);
  for (const item of rows) fill[tab](element("tr", "", body), item);
  // On a phone each cell stands under the next, with the head of its column before it.
  for (const row of body.rows) for (const cell of row.cells) cell.dataset.label = columns[tab][cell.cellIndex][0];
  $("table").replaceChildren(table);
  // Whoever goes through the page by keyboard stays where they are.
  if (focused) for (const made of $("table").querySelectorAll("button")) if (made.dataset.key === focused) made.focus();
}
function fresh() { clearTimeout(typing); trail = [0]; load(); }
function only(fields) { for (const key of FIELDS) $(key).value = fields[key] ?? ""; $("search").value = ""; show("messages"); }
function show(name) {
  tab = name;
  for (const key of Object.keys(columns)) $("tab-" + key).setAttribute("aria-selected", key === name);
  for (const field of document.querySelectorAll(".for-messages")) field.classList.toggle("hidden", name !== "messages");
  $("search").placeholder = name === "messages" ? "part of the content" : "part of a name";
  $("table").replaceChildren();
  shown = "";
  next = null;
  fresh();
}
async function act(path, body, method = "POST") {
  try { await call(path, { method, body: body && JSON.stringify(body) }); } catch (error) { $("problem").textContent = error.message; return; }
  load();
}
function sure(text, path, method, body) {
  $("sure-text").textContent = text;
  $("sure").showModal();
  $("sure-yes").onclick = async () => {
    $("sure").close();
    try { await call(path, { method, body: body && JSON.stringify(body) }); } catch (error) { $("problem").textContent = error.message; return; }
    $("detail").close();
    load();
  };
}
async function open(id) {
  try {
    const m = await call("messages/" + id);
    const facts = ["Queue " + m.queue, "from " + person(m.sender_id, m.sender), "to " + person(m.receiver_id, m.receiver), "priority " + m.priority, "sent " + time(m.sent_at_ms), m.characters.toLocaleString() + " characters"];
    if (m.bytes != null) facts.push(m.bytes.toLocaleString() + " bytes of data");
    for (const [name, value] of Object.entries(m.headers ?? {})) facts.push(name + ": " + value);
    if (m.dead_reason) facts.push("dead since " + time(m.dead_at_ms) + ": " + m.dead_reason + ", from queue " + (m.origin ?? m.origin_queue_id));
    if (m.deliveries) facts.push("leased " + m.deliveries + (m.deliveries === 1 ? " time" : " times"));
    if (m.leased) facts.push("held by " + person(m.leased_by_id, m.leased_by) + " until " + time(m.due_at_ms));
    else if (m.due_at_ms) facts.push("delayed until " + time(m.due_at_ms));
    $("detail-title").textContent = "Message " + m.message_id;
    $("detail-facts").textContent = facts.join(" · ");
    $("detail-content").textContent = m.content;
    $("detail-delete").onclick = () => sure("Delete message " + m.message_id + "? This cannot be undone.", "messages/" + m.message_id, "DELETE");
    $("detail").showModal();
  } catch (error) { $("problem").textContent = error.message; }
}
function counted() { const length = [...$("compose-form").content.value].length; $("compose-count").textContent = length.toLocaleString() + " of " + most.toLocaleString() + " characters"; }

for (const key of Object.keys(columns)) $("tab-" + key).addEventListener("click", () => { $("search").value = ""; show(key); });
for (const key of ["search", ...FIELDS]) $(key).addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(fresh, TYPING_MS); });
$("newest").addEventListener("change", fresh);
$("live").addEventListener("change", () => { if ($("live").checked) load(); });
$("next").addEventListener("click", () => { if (next != null) { trail.push(next); load(); } });
$("previous").addEventListener("click", () => { if (trail.length > 1) { trail.pop(); load(); } });
$("first").addEventListener("click", fresh);
$("halt").addEventListener("click", () => { pending?.abort(); pending = null; spanned = true; $("halt").classList.add("hidden"); $("where").textContent = "stopped; the next page goes on"; controls(); timer = setTimeout(again, PAUSE_MS); });
$("detail-close").addEventListener("click", () => $("detail").close());
$("sure-no").addEventListener("click", () => $("sure").close());
$("compose-no").addEventListener("click", () => $("compose").close());
$("new").addEventListener("click", () => { $("compose-form").queue.value = tab === "messages" ? $("queue").value : ""; $("compose-problem").textContent = ""; counted(); $("compose").showModal(); });
$("compose-form").content.addEventListener("input", counted);
$("new-queue").addEventListener("click", () => { $("queue-form").reset(); $("queue-problem").textContent = ""; $("make").showModal(); });
$("queue-no").addEventListener("click", () => $("make").close());
// Sends a form; a second click while that is under way is no second message.
function sends(form, send) {
  let busy = false;
  form.addEventListener("submit", async event => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    await send(form).finally(() => { busy = false; });
  });
}
sends($("queue-form"), async form => {
  const number = field => Number(field.value || 0);
  const body = JSON.stringify({ name: form.elements.name.value, max_deliveries: number(form.deliveries), dead_letters: form.letters.value, retention_ms: number(form.retention) * 1000, archive_ms: number(form.archive) * 1000 });
  try { await call("queues", { method: "POST", body }); } catch (error) { $("queue-problem").textContent = error.message; return; }
  $("make").close();
  show("queues");
});
sends($("compose-form"), async form => {
  const body = JSON.stringify({ queue: form.queue.value, from: form.from.value, to: form.to.value, priority: Number(form.priority.value), content: form.content.value });
  try { await call("messages", { method: "POST", body }); } catch (error) { $("compose-problem").textContent = error.message; return; }
  $("compose").close();
  form.content.value = "";
  load();
});
show("queues");
