"use strict";
// The list of completions draws only the rows in view, so that 100,000 of them scroll smoothly.
const ROW = 34, MARGIN = 10;
const FULL = 0.5;  // the log-ratio at which a token has its full colour
const STEP = 0, DATASET = 1, FIRST = 2;

function makeBrowser(runs) {
  const form = document.getElementById("filters"), list = document.getElementById("list");
  const space = document.getElementById("space"), detail = document.getElementById("detail");
  const field = {};
  runs[0].fields.forEach((name, index) => { field[name] = index + FIRST; });
  let found = [], selected = -1;

  function option(select, value, text) {
    select.append(Object.assign(document.createElement("option"), { value, textContent: text }));
  }
  option(form.run, "", "all");
  runs.forEach((run, index) => option(form.run, index, run.label));
  option(form.dataset, "*", "all");
  const sets = new Set(runs.flatMap((run) => run.samples.map((row) => row[DATASET])));
  [...sets].sort().forEach((set) => option(form.dataset, set, set || "rollouts"));

  function limit(name, otherwise) {
    return form[name].value === "" ? otherwise : Number(form[name].value);
  }

  function search() {
    const [from, to] = [limit("from", -Infinity), limit("to", Infinity)];
    const [low, high] = [limit("low", -Infinity), limit("high", Infinity)];
    const bounded = form.low.value !== "" || form.high.value !== "";
    const text = form.text.value.toLowerCase(), set = form.dataset.value;
    const places = [field.prompt, field.completion, field.answer];
    const matches = (row) => row[STEP] >= from && row[STEP] <= to && (set === "*" || row[DATASET] === set)
      && (!bounded || (row[field.reward] !== null && row[field.reward] >= low && row[field.reward] <= high))
      && (!text || places.some((place) => String(row[place] ?? "").toLowerCase().includes(text)));
    found = [];
    runs.forEach((run, index) => {
      if (form.run.value !== "" && Number(form.run.value) !== index) return;
      for (const row of run.samples) if (matches(row)) found.push([run, row]);
    });
    const all = runs.reduce((sum, run) => sum + run.samples.length, 0);
    const omitted = runs.reduce((sum, run) => sum + run.omitted, 0);
    const more = omitted ? `; ${omitted.toLocaleString("en")} older ones are not in this page` : "";
    document.getElementById("count").textContent =
      `${found.length.toLocaleString("en")} of ${all.toLocaleString("en")} completions${more}`;
    space.style.height = `${found.length * ROW}px`;
    list.scrollTop = 0;
    select(found.length ? 0 : -1);
  }

  function draw() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - MARGIN);
    const last = Math.min(found.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + MARGIN);
    const rows = [];
    for (let index = first; index < last; index++) rows.push(rowElement(index));
    space.replaceChildren(...rows);
  }

  function rowElement(index) {
    const [, row] = found[index], element = document.createElement("div");
    element.className = index === selected ? "row selected" : "row";
    element.style.top = `${index * ROW}px`;
    element.setAttribute("role", "option");
    const reward = row[field.reward];
    const cells = [`${row[STEP]}`, reward === null ? "–" : reward.toFixed(2), row[field.completion] ?? ""];
    cells.forEach((text, column) => {
      const cell = Object.assign(document.createElement("span"), { textContent: text });
      if (column === 1) cell.className = row[field.accuracy] > 0 ? "right" : "wrong";
      element.append(cell);
    });
    element.addEventListener("click", () => select(index));
    return element;
  }

  // Red: the policy makes the token likelier than it was when it was sampled; blue: less likely.
  function tokenElements(tokens, ratios) {
    return tokens.map((text, index) => {
      const ratio = ratios ? ratios[index] : null;
      const element = Object.assign(document.createElement("span"), { textContent: text });
      if (ratio === null || ratio === undefined) {
        element.className = "off";
        element.title = "not in the loss";
        return element;
      }
      element.className = ratio < 0 ? "less" : "more";
      element.style.setProperty("--weight", `${Math.min(100, Math.abs(ratio) / FULL * 100)}%`);
      element.title = `log-ratio ${ratio.toFixed(3)}, importance ratio ${Math.exp(ratio).toFixed(3)}`;
      return element;
    });
  }

  function legend() {
    const line = Object.assign(document.createElement("p"), { className: "legend" });
    for (const [name, text] of [["less", "less likely"], ["more", "likelier"], ["off", "not in the loss"]]) {
      const sample = Object.assign(document.createElement("span"), { className: name, textContent: text });
      sample.style.setProperty("--weight", "100%");
      line.append(sample, " ");
    }
    line.append(`under the trained policy than when sampled; full colour at a log-ratio of ${FULL}`);
    return line;
  }

  function select(index) {
    selected = index;
    draw();
    detail.replaceChildren();
    if (index < 0) return;
    const [run, row] = found[index];
    const add = (tag, text) => detail.append(Object.assign(document.createElement(tag), { textContent: text }));
    for (const name of ["prompt", "completion", "answer"]) {
      add("h4", name === "answer" ? "reference answer" : name);
      const tokens = row[field.tokens];
      if (name !== "completion" || !tokens) {
        add("pre", row[field[name]] ?? "–");
        continue;
      }
      const place = document.createElement("pre");
      place.className = "tokens";
      place.append(...tokenElements(tokens, row[field.log_ratios]));
      detail.append(place, legend());
    }
    const shown = ["prompt", "completion", "answer", "tokens", "log_ratios", "reward_parts"];
    const rest = runs[0].fields.filter((name) => !shown.includes(name));
    const table = document.createElement("table");
    const facts = [["run", run.label], ["step", row[STEP]], ["set", row[DATASET] || "rollouts"],
      ...rest.map((name) => [name.replaceAll("_", " "), row[field[name]]]),
      ...Object.entries(row[field.reward_parts] ?? {}).map(([part, value]) => [`reward part ${part}`, value])];
    for (const [name, value] of facts) {
      const line = table.insertRow();
      line.insertCell().textContent = name;
      line.insertCell().textContent = value ?? "–";
    }
    detail.append(table);
  }

  list.addEventListener("scroll", draw, { passive: true });
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || !found.length) return;
    event.preventDefault();
    const next = Math.min(found.length - 1, Math.max(0, selected + move));
    list.scrollTop = Math.min(next * ROW, Math.max(list.scrollTop, (next + 1) * ROW - list.clientHeight));
    select(next);
  });
  form.addEventListener("input", search);
  form.addEventListener("submit", (event) => event.preventDefault());
  search();
}
