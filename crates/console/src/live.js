const MOST_LINES = 50;
const $ = id => document.getElementById(id);

function show({ title, now, seconds: all, lines }) {
  document.title = $("title").textContent = title;
  $("where").textContent = now;
  const last = all.at(-1);
  const over = key => all.map(second => [second.elapsed_s, second[key]]).filter(([, value]) => value != null);
  const has = key => all.some(second => second[key] != null);
  if (last) {
    const parts = [`${number(last.elapsed_s)} s`, last.throughput_per_s == null ? null : `${number(last.throughput_per_s)}/s`, `mean ${seconds(last.response_time_mean_s)}`, `p99 ${seconds(last.response_time_p99_s)}`, last.errors == null ? null : `errors ${last.errors}`];
    $("last").textContent = "Last second: " + parts.filter(Boolean).join(", ");
    chart($("charts"), { title: "Throughput", x: "seconds of load", y: "1/s", lines: [{ name: "throughput", points: over("throughput_per_s") }] });
    chart($("charts"), { title: "Response time", x: "seconds of load", y: "", unit: seconds, lines: [{ name: "mean", points: over("response_time_mean_s") }, { name: "p99", type: "second", points: over("response_time_p99_s") }] });
    if (has("errors")) chart($("charts"), { title: "Errors", x: "seconds of load", y: "1/s", lines: [{ name: "errors", points: over("errors") }] });
  }
  $("hosts").replaceChildren();
  for (const host of last?.hosts ?? []) element("li", `${host.name}: ${number(host.busy_cores)} of ${host.cores} cores busy`, $("hosts"));
  $("lines").textContent = lines.slice(-MOST_LINES).join("\n").replace(/\x1b\[[0-9;]*m/g, "");
  $("lines").hidden = lines.length === 0;
}

async function look() {
  try {
    show(await (await fetch("live")).json());
    setTimeout(look, 1000);
  } catch {
    $("where").textContent = "It has ended, or does not answer. These are its last figures; reload the page to look again.";
  }
}
look();
