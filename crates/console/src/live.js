const MOST_LINES = 50;
const $ = id => document.getElementById(id);

function show({ title, now, seconds: all, lines }) {
  document.title = $("title").textContent = title;
  $("where").textContent = now;
  const last = all.at(-1);
  if (last) {
    const parts = [`${number(last.elapsed_s)} s`, last.throughput_per_s == null ? null : `${number(last.throughput_per_s)}/s`, `mean ${seconds(last.response_time_mean_s)}`, `p99 ${seconds(last.response_time_p99_s)}`, last.errors == null ? null : `errors ${last.errors}`];
    $("last").textContent = "Last second: " + parts.filter(Boolean).join(", ");
    liveSeconds($("live"), all);
  }
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
