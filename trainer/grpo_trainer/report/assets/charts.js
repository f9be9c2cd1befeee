"use strict";
// Curves of all runs, one chart a metric, drawn by Plotly.
const COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf"];

// Title, and the metrics in it: [metric, legend suffix].
const CHARTS = [
  ["Learning", [
    ["Reward", [["grpo_reward_mean", ""]]],
    ["Accuracy of rollouts", [["grpo_accuracy_mean", ""]]],
    ["Accuracy of evaluations", "evaluations"],
    ["Format accuracy", [["grpo_format_accuracy_mean", ""]]],
    ["Response tokens", [["grpo_response_tokens_mean", ""]]],
    ["Parts of the reward", "parts"],
    ["Groups without signal, share", [["zero_std_fraction", ""]]],
  ]],
  ["Policy", [
    ["Loss", [["grpo_loss", ""]]],
    ["KL to the reference policy", [["grpo_kl", ""]]],
    ["Entropy, nats per token", [["grpo_entropy", ""]]],
    ["Gradient norm", [["grpo_gradient_norm", ""]]],
    ["Clipped tokens, share", [["grpo_clip_ratio_low", " low"], ["grpo_clip_ratio_high", " high"]]],
    ["Learning rate", [["grpo_learning_rate", ""]]],
  ]],
  ["Off-policy", [
    ["Staleness, weight versions", [["grpo_staleness_versions", ""]]],
    ["Mean importance ratio", [["grpo_importance_ratio_mean", ""]]],
  ]],
  ["Pipeline", [
    ["Seconds per step", [["seconds", ""]]],
    ["Idle ratio", [["grpo_consumer_idle_ratio", " consumers"], ["grpo_producer_idle_ratio", " producers"]]],
    ["Buffer depth, groups", [["grpo_buffer_depth", ""]]],
    ["Seconds per step, by phase", "phases"],
  ]],
];
const PHASE = "grpo_phase_seconds_total_", PART = "grpo_reward_part_mean_";

function smoothed(values, weight) {
  let mean = 0, norm = 0;
  return values.map((value) => {
    mean = weight * mean + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return mean / norm;
  });
}

function metricTraces(runs, metrics, weight) {
  const traces = [];
  runs.forEach((run, index) => metrics.forEach(([metric, suffix], order) => {
    const curve = run.curves[metric];
    if (!curve) return;
    const colour = COLOURS[index % COLOURS.length];
    const line = { color: colour, width: 2, dash: order ? "dot" : "solid" };
    const name = run.label + suffix;
    if (weight > 0) {
      traces.push({ x: curve[0], y: curve[1], mode: "lines", opacity: 0.25, line: { ...line, width: 1 },
        hoverinfo: "skip", showlegend: false });
    }
    traces.push({ x: curve[0], y: smoothed(curve[1], weight), mode: "lines", name, line });
  }));
  return traces;
}

function evaluationTraces(runs) {
  const traces = [];
  runs.forEach((run, index) => {
    const sets = [...new Set(run.evaluations.map((e) => e[0]))];
    sets.forEach((set, order) => {
      const rows = run.evaluations.filter((e) => e[0] === set);
      traces.push({
        x: rows.map((e) => e[1]), y: rows.map((e) => e[3]), mode: "lines+markers",
        name: `${run.label} ${set}`,
        line: { color: COLOURS[index % COLOURS.length], dash: order ? "dot" : "solid" },
        error_y: { type: "data", array: rows.map((e) => e[4] || 0), thickness: 1, width: 3 },
      });
    });
  });
  return traces;
}

// Differences of the totals: the seconds that each step spent in each phase.
function phaseTraces(runs) {
  const run = runs[0];
  return Object.keys(run.curves).filter((name) => name.startsWith(PHASE)).map((name) => {
    const [steps, totals] = run.curves[name];
    const values = totals.map((total, i) => Math.max(0, total - (i ? totals[i - 1] : 0)));
    return { x: steps.slice(1), y: values.slice(1), name: name.slice(PHASE.length), stackgroup: "phases",
      mode: "none" };
  });
}

// A dash pattern for each part, a colour for each run.
function partTraces(runs, weight) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))]
    .filter((name) => name.startsWith(PART)).sort();
  const dashes = ["solid", "dot", "dash", "dashdot", "longdash"];
  return runs.flatMap((run, index) => names.filter((name) => name in run.curves).map((name) => ({
    x: run.curves[name][0], y: smoothed(run.curves[name][1], weight), mode: "lines",
    name: `${runs.length > 1 ? `${run.label} ` : ""}${name.slice(PART.length)}`,
    line: { width: 2, dash: dashes[names.indexOf(name) % dashes.length],
      color: COLOURS[(runs.length > 1 ? index : names.indexOf(name)) % COLOURS.length] },
  })));
}

function tracesOf(content, runs, weight) {
  if (content === "evaluations") return evaluationTraces(runs);
  if (content === "phases") return phaseTraces(runs);
  if (content === "parts") return partTraces(runs, weight);
  return metricTraces(runs, content, weight);
}

function chartLayout(title, several) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line") };
  return {
    title: { text: title, font: { size: 14 }, x: 0.02, xanchor: "left", y: 0.97, yanchor: "top" },
    margin: { l: 52, r: 14, t: 34, b: several ? 58 : 38 }, font: { color: colour("--text"), size: 11 },
    paper_bgcolor: colour("--card"), plot_bgcolor: colour("--card"), hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--text") } },
    xaxis: { ...axis, title: { text: "step", standoff: 4 } }, yaxis: axis, showlegend: several,
    legend: { orientation: "h", y: -0.22, x: 0, yanchor: "top" },
  };
}

function drawCharts(runs, weight) {
  const place = document.getElementById("charts");
  place.replaceChildren();
  for (const [heading, charts] of CHARTS) {
    const drawn = charts.map(([title, content]) => [title, tracesOf(content, runs, weight)])
      .filter(([, traces]) => traces.length);
    if (!drawn.length) continue;
    place.append(Object.assign(document.createElement("h3"), { textContent: heading }));
    for (const [title, traces] of drawn) {
      const chart = Object.assign(document.createElement("div"), { className: "chart" });
      place.append(chart);
      const several = traces.filter((trace) => trace.showlegend !== false).length > 1;
      const shown = title.endsWith("by phase") && runs.length > 1 ? `${title}: ${runs[0].label}` : title;
      Plotly.newPlot(chart, traces, chartLayout(shown, several), { responsive: true, displaylogo: false,
        displayModeBar: false });
    }
  }
}
