"use strict";
// Unpacks the data and fills the page. Texts are only ever set as text, never as markup.
async function unpack() {
  const packed = atob(document.getElementById("data").textContent);
  const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function percent(value) { return `${(100 * value).toFixed(1)} %`; }

function drawOverview(runs) {
  const place = document.getElementById("overview");
  runs.forEach((run, index) => {
    const card = Object.assign(document.createElement("div"), { className: "card" });
    card.style.setProperty("--run", COLOURS[index % COLOURS.length]);
    card.append(Object.assign(document.createElement("h3"), { textContent: run.label }));
    card.append(Object.assign(document.createElement("p"), { textContent: run.directory }));
    const s = run.summary, steps = run.curves.grpo_step, facts = document.createElement("dl");
    const last = steps ? steps[0][steps[0].length - 1] : 0;
    const total = run.curves.grpo_total_steps;
    const rows = [
      ["outcome", s.outcome ?? "no summary: it runs, or was killed"],
      ["steps", total ? `${last} of ${total[1][total[1].length - 1]}` : `${last}`],
    ];
    if (s.message) rows.push(["message", s.message]);
    for (const set of new Set(run.evaluations.map((e) => e[0]))) {
      const own = run.evaluations.filter((e) => e[0] === set);
      rows.push([`accuracy, ${set}`, `${percent(own[0][3])} → ${percent(own[own.length - 1][3])}`]);
    }
    if (s.samples_per_second) rows.push(["samples per second", s.samples_per_second.toFixed(1)]);
    if (s.efficiency !== undefined) rows.push(["pipeline efficiency", percent(s.efficiency)]);
    if (s.consumer_idle_ratio !== undefined) rows.push(["consumers idle", percent(s.consumer_idle_ratio)]);
    if (s.wall_seconds) rows.push(["wall time", `${Math.round(s.wall_seconds)} s`]);
    for (const [name, value] of rows) {
      facts.append(Object.assign(document.createElement("dt"), { textContent: name }));
      facts.append(Object.assign(document.createElement("dd"), { textContent: value,
        className: name === "outcome" ? String(value) : "" }));
    }
    card.append(facts);
    place.append(card);
  });
}

function table(head, rows) {
  const scroll = Object.assign(document.createElement("div"), { className: "scroll" });
  const element = document.createElement("table"), line = element.createTHead().insertRow();
  for (const text of head) line.append(Object.assign(document.createElement("th"), { textContent: text }));
  const body = element.createTBody();
  for (const row of rows) {
    const tr = body.insertRow();
    row.forEach((value, column) => {
      const cell = tr.insertCell();
      cell.textContent = value;
      if (column > 1) cell.className = "number";
    });
  }
  scroll.append(element);
  return scroll;
}

function drawEvaluations(runs) {
  const rows = runs.flatMap((run) => run.evaluations.map(([set, step, samples, accuracy, error, passes]) =>
    [run.label, set, step, samples, percent(accuracy), error === null ? "–" : `± ${(100 * error).toFixed(1)}`,
      passes || "–"]));
  const place = document.getElementById("evaluations");
  place.append(rows.length ? table(["run", "set", "step", "samples", "accuracy", "standard error", "pass@k"], rows)
    : Object.assign(document.createElement("p"), { textContent: "No evaluations." }));
}

function drawSettings(runs) {
  const only = document.getElementById("differences").checked;
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))].sort();
  const element = document.getElementById("settings");
  element.replaceChildren();
  const head = element.insertRow();
  for (const text of ["field", ...runs.map((run) => run.label)]) {
    head.append(Object.assign(document.createElement("th"), { textContent: text }));
  }
  for (const name of names) {
    const values = runs.map((run) => name in run.settings ? JSON.stringify(run.settings[name]) : "default");
    const different = new Set(values).size > 1;
    if (only && !different) continue;
    const row = element.insertRow();
    if (different) row.className = "different";
    for (const text of [name, ...values]) row.insertCell().textContent = text;
  }
}

function drawEnvironment(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.environment)))];
  const place = document.getElementById("environment");
  if (!names.length) {
    place.append(Object.assign(document.createElement("p"), { textContent: "Not logged." }));
    return;
  }
  const shown = table(["", ...runs.map((run) => run.label)],
    names.map((name) => [name, ...runs.map((run) => run.environment[name] ?? "–")]));
  shown.querySelectorAll("tbody tr").forEach((row) => {
    const values = [...row.cells].slice(1).map((cell) => cell.textContent);
    if (new Set(values).size > 1) row.className = "different";
  });
  shown.querySelectorAll("td").forEach((cell) => { cell.className = ""; });
  place.append(shown);
}

function labelled(runs) {
  const names = runs.map((run) => run.name);
  const unique = new Set(names).size === names.length;
  return runs.map((run) => ({ ...run, label: unique ? run.name : run.directory.split("/").pop() }));
}

unpack().then(({ title, runs: unlabelled }) => {
  const runs = labelled(unlabelled), root = document.documentElement;
  const smoothing = document.getElementById("smoothing"), theme = document.getElementById("theme");
  document.querySelector("h1").textContent = title;
  const redraw = () => {
    smoothing.nextElementSibling.textContent = Number(smoothing.value).toFixed(2);
    drawCharts(runs, Number(smoothing.value));
  };
  const paint = (dark) => {
    root.dataset.theme = dark ? "dark" : "light";
    theme.textContent = dark ? "Light" : "Dark";
    redraw();
  };
  theme.addEventListener("click", () => paint(root.dataset.theme !== "dark"));
  smoothing.addEventListener("change", redraw);
  document.getElementById("differences").addEventListener("change", () => drawSettings(runs));
  drawOverview(runs);
  drawEvaluations(runs);
  drawSettings(runs);
  drawEnvironment(runs);
  makeBrowser(runs);
  paint(window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.body.dataset.ready = "true";
});
