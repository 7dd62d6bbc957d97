"use strict";
// The sections of the page: one function each, which draws from `state` alone.

const FAULTS = new Set(["loss_of_process", "card_failure", "out_of_memory", "non_finite", "fault", "agent_silent",
  "coordinator_restart", "coordinator_pause", "memory_prediction", "label_bound", "disk", "picture"]);
const FOLLOWS = new Set(["activations", "restart", "resume", "rescale", "loss_scale", "generation", "plan", "run_over"]);
const MARKED = new Set(["loss_of_process", "card_failure", "out_of_memory", "non_finite", "agent_silent", "coordinator_restart"]);
// The other kinds are readable as they are.
const KIND_WORDS = {rescale: "more or fewer processes", join: "worker joined", agent_joins: "agent joined",
  restart: "worker restarted", coordinator_restart: "coordinator restarted", coordinator_pause: "coordinator paused",
  coordinator_log: "coordinator's log", loss_of_process: "worker lost", card_failure: "card failed", activations: "activation policy",
  memory_prediction: "memory above prediction", label_bound: "more boxes than planned", cuda_graphs: "CUDA graphs",
  non_finite: "not finite", data: "data set", autoanchor: "anchors", weights: "starting weights",
  augment_on: "augmentation", run_directory: "run's folder", resume: "training goes on", run_over: "end of the run"};
const kindWords = (kind) => KIND_WORDS[kind] || String(kind).replaceAll("_", " ");
const STATES = {
  running: ["running", "good"], finished: ["finished", "good"], stopped: ["stopped, can be continued", "warn"],
  failed: ["failed", "bad"], planned: ["planned, not started", "good"], unknown: ["not heard of", "warn"]};
const COLUMNS = {
  "train/box_loss": ["train box", 1], "train/obj_loss": ["train objectness", 2], "train/cls_loss": ["train class", 3],
  "train/dfl_loss": ["train distances", 2], "val/box_loss": ["validation box", 1, "5 4"],
  "val/obj_loss": ["validation objectness", 2, "5 4"], "val/cls_loss": ["validation class", 3, "5 4"],
  "val/dfl_loss": ["validation distances", 2, "5 4"], "metrics/precision": ["precision", 4, "2 3"],
  "metrics/recall": ["recall", 3, "7 3"], "metrics/mAP_0.5": ["mAP50", 1], "metrics/mAP_0.5:0.95": ["mAP50-95", 2]};
const DASHES = [null, "7 3", "2 3", "9 3 2 3"];

// ---- summary ----

sections.summary = () => {
  const {run, run: {progress}} = state;
  const [words, kind] = state.lost && run.state === "running" ? ["running when last heard", "warn"]
    : STATES[run.state] || [run.state, "warn"];
  setText(by("run-name"), run.id);
  setText(by("state"), words);
  by("state").className = `badge ${kind}`;
  setText(by("reason"), run.reason || "");
  const leftOut = run.events.filter((event) => event.event === "card_failure" && event.left_out);
  setText(by("left-out"), leftOut.map((event) => event.reason).join(" | "));
  by("left-out").hidden = leftOut.length === 0;
  const share = progress.steps > 0 && isNumber(progress.step) ? Math.min(1, progress.step / progress.steps) : null;
  const percent = share === null ? null : Math.floor(share * 100);
  by("progress-bar").style.width = `${(share || 0) * 100}%`;
  if (percent === null) by("progress").removeAttribute("aria-valuenow");
  else by("progress").setAttribute("aria-valuenow", percent);
  by("progress").setAttribute("aria-valuetext", percent === null ? UNKNOWN : `${percent} % of ${progress.steps} steps`);
  document.title = clean(`${percent === null ? "" : `${percent} % `}${run.id} – Headroom`);
  const isPlanned = run.state === "planned";
  document.body.classList.toggle("planned", isPlanned);

  const of = (now, all) => `${Format.number(now)} of ${all > 0 ? Format.number(all) : UNKNOWN}`;
  const {best, ranks} = run;
  const peak = isPlanned ? "predicted_peak" : "measured_peak";
  const most = ranks.filter((rank) => isNumber(rank[peak])).reduce((a, b) => (!a || b[peak] > a[peak] ? b : a), null);
  const limit = run.memory_limit > 0 ? run.memory_limit : null;
  const faults = run.events.filter((event) => MARKED.has(event.event)).length;
  const isOn = run.state === "running";
  const tiles = isPlanned ? [
    ["processes", "Processes", Format.number(ranks.length), ""],
    ["peak", "Predicted peak of memory", Format.bytes(most?.predicted_peak), most ? `rank ${most.rank}` : ""],
    ["limit", "Limit of memory", limit ? Format.bytes(limit) : "none", ""],
  ] : [
    ["epoch", "Epoch", of(progress.epoch, progress.epochs), progress.phase],
    ["step", "Step", of(progress.step, progress.steps), percent === null ? "" : `${percent} % done`],
    ["rate", "Speed", Format.rate(progress.images_per_second), isNumber(progress.images_per_second) ? "median over steps" : ""],
    ["eta", "Time to the end", isOn ? Format.duration(progress.eta_seconds) : "none", isOn ? "" : words],
    ["map50", "Best mAP50", best ? Format.share(best.map50) : UNKNOWN,
      best ? `mAP50-95 ${Format.share(best.map)}, epoch ${best.epoch + 1}` : "not validated yet"],
    ["peak", "Peak of memory", Format.bytes(most?.measured_peak), most ? `rank ${most.rank}, predicted ` +
      `${Format.bytes(most.predicted_peak)}${limit ? `, limit ${Format.bytes(limit)}` : ""}` : ""],
    ["faults", "Faults", Format.number(faults), faults ? "see the life of the run" : "none so far"],
  ];
  reconcile(by("tiles"), tiles, ([key]) => key, ([key, name]) => el("div", {class: "tile", "data-tile": key},
    el("dt", {text: name}), el("dd", {class: "big"}), el("dd", {class: "soft"})), (tile, [, , value, more]) => {
    setText(tile.children[1], value);
    tile.children[1].classList.toggle("unknown", value === UNKNOWN);
    setText(tile.children[2], more || "");
  });
  by("stop-line").hidden = !(state.news.may_stop && isOn && state.id === state.news.live);
  by("resume").hidden = !run.command;
  setText(by("resume-title"), isPlanned ? "Start this run" : "Continue this run");
  setText(by("resume-command"), run.command || "");
  setText(by("about"), isPlanned ? "" : `Folder ${run.directory}`);
  setText(by("version"), `Headroom ${run.version || ""}`);
  showConnection();
};

by("stop").addEventListener("click", () => by("stop-question").showModal());
by("stop-no").addEventListener("click", () => by("stop-question").close());
by("stop-yes").addEventListener("click", async () => {
  by("stop-question").close();
  by("stop").disabled = true;
  setText(by("stopping"), "It is asked to stop.");
  try {
    await source.stop();
  } catch (error) {
    by("stop").disabled = false;
    setText(by("stopping"), `It was not asked: ${error.message}`);
  }
});

by("copy").addEventListener("click", async () => {
  const code = by("resume-command");
  try {
    await navigator.clipboard.writeText(code.textContent);
    setText(by("copied"), "Copied.");
  } catch {
    getSelection().selectAllChildren(code);
    setText(by("copied"), "Selected: press Ctrl-C to copy.");
  }
});

// ---- curves ----

const epochTitle = {xName: "epoch", xFormat: (x) => Format.number(x, Number.isInteger(x) ? 0 : 1)};
const lossChart = new Chart(by("epoch-charts"), {title: "Losses of each epoch", ...epochTitle,
  describe: "Mean losses in training and validation"});
const qualityChart = new Chart(by("epoch-charts"), {title: "Detection quality", ...epochTitle, format: Format.share,
  fromZero: true, describe: "Precision, recall and mean average precision in validation"});
const stepChart = new Chart(by("step-chart"), {title: "Each step", xName: "step", height: 280,
  describe: "Values of each training step"});
const STEP_VIEWS = {
  losses: ["losses", [["box", "box", 1], ["obj", "objectness", 2], ["cls", "class", 3], ["dfl", "distances", 2]], Format.value],
  grad_norm: ["gradient norm", [["grad_norm", "gradient norm", 1]], Format.value],
  lr: ["learning rate", [["lr", "learning rate", 1]], Format.value],
  images_per_second: ["speed", [["images_per_second", "images per second", 1]], Format.rate]};
const stepView = el("select", null, ...Object.entries(STEP_VIEWS).map(([value, [text]]) => el("option", {value, text})));
const smooth = el("input", {type: "checkbox", checked: true});
const logarithmic = el("input", {type: "checkbox"});
for (const input of [stepView, smooth, logarithmic]) {
  input.addEventListener("change", () => {
    stepChart.isLog = logarithmic.checked;
    drawNow("steps");
  });
}
stepChart.controls.prepend(el("label", {class: "choose"}, "Show ", stepView),
  el("label", {class: "choose"}, smooth, " smooth"), el("label", {class: "choose"}, logarithmic, " logarithmic"));

// Faults and checkpoints as markers of a chart; `place` maps a step to x.
function markers(place) {
  const found = [];
  for (const event of state.run.events) {
    if (!isNumber(event.step)) continue;
    if (MARKED.has(event.event)) {
      found.push({x: place(event.step), kind: "fault", text: `${kindWords(event.event)}: ${event.reason}`});
    } else if (event.event === "checkpoint" && !event.warning) {
      found.push({x: place(event.step), kind: "checkpoint", text: `checkpoint after ${Format.count(event.step, "step")}`});
    }
  }
  for (const step of state.run.checkpoints) {
    found.push({x: place(step), kind: "checkpoint", text: `checkpoint after ${Format.count(step, "step")}`});
  }
  return found;
}

function epochSeries(run, names) {
  const {columns, rows} = run.epochs;
  return names.filter((name) => columns.includes(name)).map((name) => {
    const [text, colour, dash] = COLUMNS[name] || [name, 1];
    const at = columns.indexOf(name);
    return {name: text, colour, dash, bridges: true, xs: rows.map((row) => row[0] + 1), ys: rows.map((row) => row[at])};
  }).filter((series) => series.ys.some(isNumber));
}

sections.epochs = () => {
  const {run, run: {progress}} = state;
  // Epoch 1 ends at x = 1; a step inside an epoch is between whole numbers.
  const perEpoch = progress.steps > 0 && progress.epochs > 0 ? progress.steps / progress.epochs : null;
  const marks = perEpoch ? markers((step) => step / perEpoch) : [];
  const names = Object.keys(COLUMNS);
  const lastEpoch = run.epochs.rows.length ? run.epochs.rows[run.epochs.rows.length - 1][0] + 1 : 1;
  const range = [0, lastEpoch];
  lossChart.update({series: epochSeries(run, names.filter((name) => name.endsWith("_loss"))), markers: marks, range});
  qualityChart.update({series: epochSeries(run, names.filter((name) => !name.endsWith("_loss"))), markers: marks, range});
};

// An exponential mean, which shows the trend of a noisy loss.
function smoothed(ys, keep) {
  let mean = null;
  let weight = 0;
  return ys.map((y) => {
    if (!isNumber(y)) return null;
    mean = (mean ?? 0) * keep + y * (1 - keep);
    weight = weight * keep + (1 - keep);
    return mean / weight;
  });
}

sections.steps = () => {
  if (!state.steps) return;
  const {columns, rows, total} = state.steps;
  const [, lines, format] = STEP_VIEWS[stepView.value];
  stepChart.format = format;
  const at = columns.indexOf("step");
  const xs = rows.map((row) => row[at]);
  const keep = rows.length > 60 ? 1 - 20 / rows.length : 0.6;
  const series = lines.filter(([column]) => columns.includes(column)).flatMap(([column, name, colour]) => {
    const ys = rows.map((row) => row[columns.indexOf(column)]);
    // A run has the losses of its head only.
    if (column !== lines[0][0] && !ys.some(isNumber)) return [];
    if (!smooth.checked || rows.length < 8) return [{name, colour, xs, ys}];
    const show = (index) => format(ys[index]);
    return [{name, group: name, colour, xs, ys, soft: true}, {name, colour, xs, ys: smoothed(ys, keep), show}];
  });
  stepChart.describe = total > rows.length ? `${Format.number(rows.length)} of ${Format.count(total, "step")} are ` +
    "drawn; the least and greatest stay" : `All ${Format.count(rows.length, "step")}`;
  stepChart.update({series, markers: markers((step) => step), range: xs.length ? [xs[0], xs[xs.length - 1]] : undefined});
};

// Shows a newly opened run at full range.
function showAll() {
  for (const chart of [lossChart, qualityChart, stepChart, memoryChart, timelineChart]) chart.view = null;
}

// ---- memory ----

const memoryChart = new Chart(by("memory-charts"), {title: "Peak memory of each step", xName: "step", format: Format.bytes,
  fromZero: true, height: 250, describe: "Largest tensor memory of the rank: predicted, measured and the limit"});
const timelineChart = new Chart(by("memory-charts"), {title: "One step, layer by layer", xName: "layers in the order of the step",
  format: Format.bytes, fromZero: true, unitStep: 1, height: 290,
  describe: "Predicted memory of one step: what is kept, and on top of it what a layer needs for a moment"});
by("memory-zero").addEventListener("change", (event) => {
  memoryChart.fromZero = event.target.checked;
  drawNow("memory");
});
by("rank-select").addEventListener("change", (event) => chooseRank(Number(event.target.value)));

function chooseRank(rank) {
  state.rank = rank;
  memoryChart.view = timelineChart.view = null;
  fetchTimeline();
  drawNow("memory", "layout");
}

sections.memory = () => {
  const {run, steps, rank} = state;
  if (!run) return;
  const select = by("rank-select");
  reconcile(select, run.ranks, (one) => one.rank, (one) => el("option", {value: one.rank, text: `${one.rank}`}),
    (option, one) => setText(option, one.host ? `${one.rank} on ${one.host}` : `${one.rank}`));
  select.value = rank;
  const mine = run.ranks.find((one) => one.rank === rank);
  const limit = run.memory_limit > 0 ? run.memory_limit : null;
  const free = limit && isNumber(mine?.measured_peak) ? `, ${Format.bytes(limit - mine.measured_peak)} of ` +
    `${Format.bytes(limit)} are free at the peak` : ", without a limit";
  const measured = run.state === "planned" ? "" : `measured ${Format.bytes(mine?.measured_peak)}, `;
  setText(by("memory-words"), mine ? `Rank ${rank}: ${measured}predicted ${Format.bytes(mine.predicted_peak)}` +
    `${run.state === "planned" && limit ? ` of ${Format.bytes(limit)}` : free}.` : "No rank is known yet.");
  memoryChart.figure.hidden = run.state === "planned";
  const one = steps && listOf(steps.memory).find((entry) => entry.rank === rank);
  memoryChart.update({series: one ? [{name: "predicted", colour: 2, dash: "6 4", xs: one.step, ys: one.predicted},
    {name: "measured", colour: 1, xs: one.step, ys: one.measured}] : [],
  levels: limit ? [{y: limit, name: `limit ${Format.bytes(limit)}`}] : [], markers: markers((step) => step)});
  const timeline = state.timelines.get(`${state.id}/${rank}`);
  const points = listOf(timeline?.points);
  const xs = points.map((_, i) => i);
  const bands = [];
  points.forEach(({phase}, i) => {
    if (bands.length && bands[bands.length - 1].name === phase) bands[bands.length - 1].to = i + 1;
    else bands.push({name: phase, from: i, to: i + 1});
  });
  const kept = points.map((point) => point.kept);
  setText(timelineChart.empty, timeline?.why_not || "Nothing to draw yet.");
  timelineChart.update({bands, label: (i) => `${points[i].phase} ${points[i].layer}`,
    series: points.length ? [
      {name: "needed for a moment", colour: 2, xs, ys: points.map((point) => point.kept + point.scratch), base: kept,
        show: (i) => Format.bytes(points[i]?.scratch)},
      {name: "kept", colour: 1, xs, ys: kept, base: kept.map(() => 0)}] : [],
    levels: [...(limit ? [{y: limit, name: `limit ${Format.bytes(limit)}`}] : []),
      ...(timeline && isNumber(timeline.peak) ? [{y: timeline.peak, name: `peak ${Format.bytes(timeline.peak)}`}] : [])]});
};

// ---- layout ----

// Draws a rank's part of the work: of the batch (data), of the layers (stage,
// from left to right) and of the image (strip, from top to bottom).
function workPicture({data, stage, strip}, layout) {
  const [images, stages, strips] = [layout.data || 1, layout.pipeline || 1, layout.spatial || 1];
  const part = (index, all, from, size) => [from + ((index || 0) / all) * size, Math.max(1.5, size / all)];
  const [y, height] = part(data, images, 1, 34);
  const [x, width] = part(stage, stages, 8, 51);
  const [stripY, stripHeight] = part(strip, strips, y, height);
  return svg("svg", {class: "work", viewBox: "0 0 60 36", width: 60, height: 36, "aria-hidden": "true"},
    svg("rect", {class: "work-all", x: 8, y: 1, width: 51, height: 34}),
    svg("rect", {class: "work-batch", x: 1, y, width: 4, height}),
    svg("rect", {class: "work-mine", x, y: stripY, width, height: stripHeight}));
}

function workWords(rank, layout) {
  const part = (index, all) => `${(index || 0) + 1} of ${all}`;
  return [layout.data > 1 ? `part ${part(rank.data, layout.data)} of the batch` : "the whole batch",
    layout.pipeline > 1 ? `stage ${part(rank.stage, layout.pipeline)} of the layers` : "all layers",
    layout.spatial > 1 ? `strip ${part(rank.strip, layout.spatial)} of each image` : "whole images",
    layout.zero > 0 ? `ZeRO part ${part(rank.data, layout.data)}` : null].filter(Boolean).join(", ");
}

const ZERO_WORDS = ["every rank holds the whole state", "the optimizer's state is divided", "the optimizer's state and gradients are divided",
  "the optimizer's state, gradients and weights are divided"];

sections.layout = () => {
  const {run} = state;
  const layout = run.layout || {};
  const ranks = run.ranks;
  setText(by("layout-words"), !run.layout ? "There is no plan yet." : `${Format.number(layout.data)} data × ${Format.number(layout.pipeline)} pipeline × ` +
    `${Format.number(layout.spatial)} spatial = ${Format.count(ranks.length, "process", "processes")}. ` +
    `ZeRO ${layout.zero ?? UNKNOWN}: ${ZERO_WORDS[layout.zero] || UNKNOWN}. ` +
    `Micro-batches of ${Format.count(layout.micro_batch, "image")}.`);
  const largest = run.memory_limit || Math.max(1, ...ranks.map((rank) => Math.max(rank.predicted_peak || 0, rank.measured_peak || 0)));
  const hosts = new Map();
  for (const rank of ranks) {
    const host = rank.host || (run.state === "planned" ? "Processes" : UNKNOWN);
    if (!hosts.has(host)) hosts.set(host, []);
    hosts.get(host).push(rank);
  }
  const isSmall = ranks.length > 32;
  by("machines").classList.toggle("small", isSmall);
  const chosen = ranks.find((rank) => rank.rank === state.rank);
  setText(by("rank-words"), isSmall && chosen ? `Rank ${chosen.rank}: ${workWords(chosen, layout)}.` : "");
  reconcile(by("machines"), [...hosts], ([host]) => host, ([host]) => el("section", {class: "machine card"},
    el("h3", {text: host}), el("p", {class: "soft"}), el("ul", {class: "ranks"})), (machine, [, mine]) => {
    const gone = mine.filter((rank) => rank.state && rank.state !== "running" && run.state === "running").length;
    setText(machine.children[1], Format.count(mine.length, "process", "processes") + (gone ? `, ${gone} not running` : ""));
    reconcile(machine.children[2], mine, (rank) => `${rank.rank}/${isSmall}`, (rank) => el("li", null,
      el("button", {type: "button", class: "rank", on: {click: () => chooseRank(rank.rank)}},
        el("span", {class: "rank-head"}, el("strong", {text: rank.rank}), el("span", {class: "rank-state"})),
        el("span", {class: "work-place"}), el("span", {class: "rank-words"}),
        el("span", {class: "meter"}, el("span", {class: "meter-fill"})), el("span", {class: "rank-numbers"}))),
    (item, rank) => {
      const button = item.firstChild;
      const [head, place, words, meter, numbers] = button.children;
      const value = run.state === "planned" ? rank.predicted_peak : rank.measured_peak;
      const share = isNumber(value) ? Math.min(1, value / largest) : 0;
      const kind = ["running", "finished", "planned"].includes(rank.state) ? "good" : "warn";
      const work = JSON.stringify([rank.data, rank.stage, rank.strip, layout]);
      if (place.drawn !== work) {
        place.drawn = work;
        if (!isSmall) place.replaceChildren(workPicture(rank, layout));
        setText(words, workWords(rank, layout));
      }
      meter.firstChild.style.width = `${share * 100}%`;
      meter.classList.toggle("hot", run.memory_limit > 0 && share > 0.95);
      setText(head.children[1], rank.state || UNKNOWN);
      head.children[1].className = `rank-state ${kind}`;
      const age = isNumber(rank.heartbeat_age) ? `, heard ${Format.duration(rank.heartbeat_age)} ago` : "";
      setText(numbers, run.state === "planned" ? `predicted ${Format.bytes(rank.predicted_peak)}` :
        `${Format.bytes(rank.measured_peak)} (predicted ${Format.bytes(rank.predicted_peak)})${age}`);
      button.setAttribute("aria-pressed", String(rank.rank === state.rank));
      button.setAttribute("aria-label", clean(`Rank ${rank.rank}${rank.worker ? `, ${rank.worker}` : ""}: ${rank.state || UNKNOWN}, ` +
        `${words.textContent}, ${numbers.textContent}`));
      button.title = isSmall ? button.getAttribute("aria-label") : "";
    });
  });
};

// ---- life of the run ----

const EVENT_BASICS = new Set(["event", "step", "rank", "reason", "time", "warning", "generation", "epoch", "attempt"]);

function fieldText(name, value) {
  if (isNumber(value)) {
    if (/bytes$/.test(name)) return Format.bytes(value);
    if (/seconds$/.test(name)) return Format.duration(value);
    return Number.isInteger(value) ? Format.number(value) : Format.value(value);
  }
  return value === null ? UNKNOWN : typeof value === "object" ? JSON.stringify(value) : String(value);
}

// A long text may need scrolling, so the keyboard can focus it.
const fieldLine = (name, text) => [el("dt", {text: name}), el("dd", {tabindex: text.length > 200 ? "0" : null, text})];

function eventLine(event) {
  const place = [isNumber(event.step) ? `step ${Format.number(event.step)}` : null,
    isNumber(event.rank) && event.rank >= 0 ? `rank ${event.rank}` : null].filter(Boolean).join(", ");
  const kind = FAULTS.has(event.event) || event.warning || event.exit_code > 0 ? "bad" : event.exit_code === 0 ? "" : FOLLOWS.has(event.event) ? "warn" : "";
  const isTimed = isNumber(event.time) && Math.abs(event.time) < 8e12;
  const fields = Object.entries(event).filter(([name, value]) => !EVENT_BASICS.has(name) && value !== "");
  return el("li", {class: `event ${kind}`, "data-kind": event.event},
    el("strong", {text: kindWords(event.event)}),
    el("p", {class: "event-reason", text: event.reason || "no reason is given"}),
    el("span", {class: "soft", text: place}),
    el("time", {class: "soft", datetime: isTimed ? new Date(event.time * 1000).toISOString() : null, text: Format.time(event.time)}),
    fields.length ? el("details", null, el("summary", {text: "More"}), el("dl", {class: "fields"},
      ...fields.flatMap(([name, value]) => fieldLine(name.replaceAll("_", " "), fieldText(name, value))))) : null);
}

sections.life = () => {
  // Sorted by time, so that a counter keeps equal events distinct between
  // redraws.
  const all = [...state.run.events];
  if (all.length && all[0].time > all[all.length - 1].time) all.reverse();
  all.sort((a, b) => (a.time || 0) - (b.time || 0));
  const seen = new Map();
  const keys = new Map();
  const kinds = new Map();
  for (const event of all) {
    const key = JSON.stringify(event);
    seen.set(key, (seen.get(key) || 0) + 1);
    keys.set(event, `${seen.get(key)} ${key}`);
    kinds.set(event.event, (kinds.get(event.event) || 0) + 1);
  }
  const names = [...kinds].sort((a, b) => kindWords(a[0]).localeCompare(kindWords(b[0])));
  reconcile(by("kind-select"), [["", all.length], ...names], ([kind]) => kind, ([kind]) => el("option", {value: kind}),
    (option, [kind, count]) => setText(option, `${kind === "" ? "any" : kindWords(kind)} (${count})`));
  by("kind-select").value = state.kind;
  const wanted = all.reverse().filter((event) => (state.show === "all" || FAULTS.has(event.event) || FOLLOWS.has(event.event)) &&
    (state.kind === "" || state.kind === event.event));
  const shown = wanted.slice(0, state.eventsShown);
  reconcile(by("events"), shown, (event) => keys.get(event), eventLine);
  by("older").hidden = shown.length === wanted.length;
  setText(by("life-words"), all.length === 0 ? "Nothing has happened yet." :
    `${Format.number(shown.length)} of ${Format.count(all.length, "event")}, newest first.`);
};

for (const chip of document.querySelectorAll("[data-show]")) {
  chip.addEventListener("click", () => {
    state.show = chip.dataset.show;
    for (const one of document.querySelectorAll("[data-show]")) one.setAttribute("aria-pressed", String(one === chip));
    drawNow("life");
  });
}
by("kind-select").addEventListener("change", (event) => {
  state.kind = event.target.value;
  drawNow("life");
});
by("older").addEventListener("click", () => {
  state.eventsShown += 100;
  drawNow("life");
});

// ---- pictures ----

const PICTURE_KINDS = {validation: "Validation", training: "Training batches", curve: "Curves and figures"};
const pictureKind = (name) => (name.startsWith("val_batch") ? "validation" : name.startsWith("train_batch") ? "training" : "curve");
let viewed = 0;
// Sorted by name, so that the labels of a batch and its predictions are
// neighbours.
const pictureList = () => Object.keys(PICTURE_KINDS).flatMap((kind) =>
  state.run.pictures.filter(({name}) => pictureKind(name) === kind)
    .sort((a, b) => a.name.localeCompare(b.name, "en", {numeric: true})));

// A report's pictures are inside the page. A server's are fetched again when
// their time changes.
async function drawPicture(image, picture) {
  const [id, wanted] = [state.id, JSON.stringify([state.id, picture.name, picture.time])];
  if (image.dataset.picture === wanted) return;
  image.dataset.picture = wanted;
  image.removeAttribute("src");  // the former picture has another name or time
  if (picture.url) {
    image.src = picture.url;
    return;
  }
  try {
    const url = URL.createObjectURL(await source.picture(id, picture));
    if (image.dataset.picture === wanted) image.src = url;
    await image.decode().catch(() => {});  // a damaged picture stays empty
    URL.revokeObjectURL(url);
  } catch {
    // Fetched again when it is drawn next.
    if (image.dataset.picture === wanted) delete image.dataset.picture;
  }
}

// A run has up to 200 pictures: those of a server are fetched once they come
// near the part of the page that is seen.
const nearby = new IntersectionObserver((changes) => changes.forEach(({target, isIntersecting}) => {
  target.isNear = isIntersecting;
  if (isIntersecting) drawPicture(target, target.picture);
}), {rootMargin: "50%"});

function thumbnail() {
  const image = el("img", {alt: ""});
  image.isNear = false;
  nearby.observe(image);
  return image;
}

function showWhenNear(image, picture) {
  image.picture = picture;
  if (image.isNear || picture.url) drawPicture(image, picture);
}

sections.pictures = () => {
  const all = pictureList();
  setText(by("pictures-words"), state.run.pictures_note || (all.length ? "Click one, or press Enter on it, to enlarge it; arrow keys go on from there."
    : "No pictures yet; a run with --noplots has none."));
  const groups = Object.entries(PICTURE_KINDS).filter(([kind]) => all.some(({name}) => pictureKind(name) === kind));
  reconcile(by("picture-groups"), groups, ([kind]) => kind, ([, name]) => el("div", null,
    el("h3", {text: name}), el("ul", {class: name === PICTURE_KINDS.validation ? "thumbs pairs" : "thumbs"})), (group, [kind]) => {
    reconcile(group.lastChild, all.filter(({name}) => pictureKind(name) === kind), (picture) => `${state.id}/${picture.name}`,
      (picture) => el("li", null, el("button", {type: "button", class: "thumb",
        on: {click: () => showPicture(pictureList().findIndex((one) => one.name === picture.name))}},
      thumbnail(), el("span", {text: picture.name}))), (item, picture) => {
        showWhenNear(item.querySelector("img"), picture);
      });
  });
};

function showPicture(index) {
  const all = pictureList();
  viewed = (index + all.length) % all.length;
  const picture = all[viewed];
  setText(by("viewer-name"), `${picture.name} (${viewed + 1} of ${all.length})`);
  drawPicture(by("viewer-picture"), picture);
  by("viewer-picture").alt = clean(`${PICTURE_KINDS[pictureKind(picture.name)]}: ${picture.name}`);
  if (!by("viewer").open) by("viewer").showModal();
}
by("viewer-before").addEventListener("click", () => showPicture(viewed - 1));
by("viewer-next").addEventListener("click", () => showPicture(viewed + 1));
by("viewer-close").addEventListener("click", () => by("viewer").close());
by("viewer-picture").addEventListener("click", () => by("viewer").close());
by("viewer").addEventListener("keydown", (event) => {
  if (event.key === "ArrowLeft") showPicture(viewed - 1);
  if (event.key === "ArrowRight") showPicture(viewed + 1);
});

// ---- plan, settings, classes ----

sections.plan = () => {
  const plan = state.plan || {};
  setText(by("plan-reason"), plan.reason || "The plan gives no reason.");
  setText(by("plan-lines"), listOf(plan.lines).join("\n"));
  const others = listOf(plan.other_layouts);
  by("others").hidden = others.length === 0;
  reconcile(by("others"), others, ({layout, answer}) => `${layout}|${answer}`, ({layout, answer}) =>
    el("div", null, el("dt", {text: layout}), el("dd", {text: answer})));
  by("others-none").hidden = others.length > 0;
  setText(by("others-none"), plan.no_other_layouts || "None is known.");
  reconcile(by("plan-details"), listOf(plan.details), ({title}) => title, ({title, text}) => {
    const id = newId("detail");
    return el("div", {class: "card"}, el("h3", {id, text: title}),
      el("pre", {class: "scroll", tabindex: "0", role: "group", "aria-labelledby": id, text}));
  });
};

const settingsTable = new DataTable(by("settings-table"), {caption: "Settings", sort: null, columns: [
  {name: "setting", value: ([name]) => name, show: ([name]) => name, head: true, left: true},
  {name: "value", value: ([, value]) => String(value), show: ([, value]) => (value === null ? UNKNOWN : value === "" ? "–" : value), left: true}]});
sections.settings = () => {
  const sought = by("settings-find").value.trim().toLowerCase();
  settingsTable.update(listOf(state.plan?.settings).filter(([name, value]) =>
    `${name} ${value}`.toLowerCase().includes(sought)), ([name]) => `${state.id}/${name}`);
};
by("settings-find").addEventListener("input", () => drawNow("settings"));

const figure = (name, key, show = Format.share) => ({name, value: (one) => one[key] ?? null, show: (one) => show(one[key])});
const classTable = new DataTable(by("classes"), {caption: "Classes", sort: 4, columns: [
  {name: "class", value: ({name}) => name, show: ({name}) => name, head: true, left: true},
  figure("precision", "precision"), figure("recall", "recall"), figure("mAP50", "map50"), figure("mAP50-95", "map")]});
sections.classes = () => {
  const classes = listOf(state.run.per_class);
  by("classes").hidden = classes.length === 0;
  setText(by("classes-words"), classes.length ? `${Format.count(classes.length, "class", "classes")}, the weakest first.`
    : "Known after the run's last validation.");
  classTable.update(classes);
};

// ---- several runs ----

const compareChart = new Chart(by("compare-chart"), {title: "Runs compared", ...epochTitle, height: 280});
for (const [column, [text]] of Object.entries(COLUMNS)) by("compare-column").append(el("option", {value: column, text}));
by("compare-column").value = "metrics/mAP_0.5:0.95";
by("compare-column").addEventListener("change", () => drawNow("compare"));
by("compare-log").addEventListener("change", (event) => {
  compareChart.isLog = event.target.checked;
  drawNow("compare");
});

// Settings beyond these would push the figures out of sight.
const MOST_SETTINGS = 8;
const runColumns = (settings) => [
  {name: "", show: (run) => el("input", {type: "checkbox", "aria-label": `Compare ${run.id}`, checked: state.ticked.has(run.id),
    on: {change: (event) => tick(run.id, event.target.checked)}})},
  {name: "run", value: ({id}) => id, show: (run) => el("button", {type: "button", class: "link", text: run.id,
    on: {click: () => openRun(run.id)}}), left: true},
  {name: "state", value: (run) => run.state, show: (run) => (STATES[run.state] || [UNKNOWN])[0], left: true},
  ...settings.map((name) => ({name, value: ({choices}) => choices?.[name] ?? null, show: ({choices}) => (choices ? choices[name] || "–" : UNKNOWN),
    left: true})),
  figure("epoch", "epoch", Format.number),
  {name: "best mAP50", value: (run) => run.best?.map50 ?? null, show: (run) => Format.share(run.best?.map50)},
  {name: "best mAP50-95", value: (run) => run.best?.map ?? null, show: (run) => Format.share(run.best?.map)},
  figure("peak of memory", "peak", Format.bytes), figure("median speed", "speed", Format.rate),
  figure("time", "seconds", Format.duration)];

let runsTable = null;
// The table of runs; made anew when other settings differ.
function tableOfRuns(settings) {
  const names = settings.join("|");
  if (runsTable?.names === names) return runsTable;
  by("runs-table").replaceChildren();
  runsTable = new DataTable(by("runs-table"), {caption: "Runs", sort: 1, columns: runColumns(settings)});
  runsTable.names = names;
  return runsTable;
}

function tick(id, isOn) {
  if (isOn) state.ticked.add(id);
  else state.ticked.delete(id);
  drawNow("compare");
}

function runRow({id}) {
  const brief = state.briefs.get(id);
  if (!brief) return {id};
  const {record} = id === state.news.live ? {record: recordOf(brief.parsed, state.news.status)} : brief;
  const {best, peak, speed, seconds, progress, choices} = record;
  return {id, state: record.state, best, peak, speed, seconds, epoch: progress.epoch, choices};
}

// The names of the settings in which the runs of the page differ.
function differingSettings() {
  const all = [...state.briefs.values()].map(({record}) => record.choices)
    .filter((choices) => Object.keys(choices).length > 0);
  const names = new Set(all.flatMap(Object.keys));
  return [...names].filter((name) => new Set(all.map((choices) => choices[name])).size > 1);
}

sections.runs = () => {
  const {runs} = state.news;
  const isMany = runs.length > 1;
  by("compare").hidden = by("compare-link").hidden = by("run-choice").hidden = !isMany;
  if (!isMany) return;
  if (state.ticked.size === 0 && !state.hasTicked) {
    state.hasTicked = true;
    state.ticked = new Set([state.id, ...runs.slice(0, 4).map((run) => run.id)]);
    redraw("compare");
  }
  const differing = differingSettings();
  const left_out = differing.length - MOST_SETTINGS;
  setText(by("runs-words"), differing.length === 0 ? "The runs have the same settings." : left_out > 0 ?
    `${Format.count(left_out, "more setting")} differ: each run's page has all.` : "");
  tableOfRuns(differing.slice(0, MOST_SETTINGS)).update(runs.map(runRow), (run) => run.id);
  reconcile(by("run-select"), runs, (run) => run.id, (run) => el("option", {value: run.id, text: run.id}));
  by("run-select").value = state.id;
};

sections.compare = () => {
  const column = by("compare-column").value;
  compareChart.format = column.startsWith("metrics/") ? Format.share : Format.value;
  const series = [...state.ticked].filter((id) => state.briefs.has(id)).flatMap((id, index) =>
    epochSeries(state.briefs.get(id).record, [column]).map((one) =>
      ({...one, name: id, colour: (index % 6) + 1, dash: DASHES[Math.floor(index / 6) % DASHES.length]})));
  compareChart.title = `Runs compared: ${COLUMNS[column][0]}`;
  compareChart.update({series});
};
