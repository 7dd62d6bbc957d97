"use strict";
// Parses a run's files. The program sends a run as a document: the texts of its
// files and a few facts that only the program has (run_record.h). This file
// turns it into the record that the sections draw. Its functions use neither
// the page nor the network, so node tests them.

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const listOf = (value) => (Array.isArray(value) ? value : []);
const numberOr = (value, otherwise) => (isNumber(value) ? value : otherwise);
const hasDepth = (value, levels) => value === null || typeof value !== "object" ||
  (levels > 0 && Object.values(value).every((member) => hasDepth(member, levels - 1)));

// The JSON object in a text; null if there is none, or if it has so many levels
// that writing it again would overflow the stack.
function objectOf(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) && hasDepth(value, 64) ? value : null;
  } catch {
    return null;
  }
}

// The lines of a text, without an incomplete last line.
const linesOf = (text) => (text || "").split("\n").slice(0, -1);

// The data of the complete messages in the text of an event stream, and the rest,
// which is not complete yet. Comments have no data.
function messagesIn(text) {
  const parts = text.split("\n\n");
  const rest = parts.pop();
  const dataOf = (part) => part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
  return {messages: parts.map(dataOf).filter(Boolean), rest};
}

// The events of events.jsonl, newest first, with their times in Unix seconds.
function eventsOf(text) {
  return linesOf(text).map(objectOf).filter(Boolean).reverse().map((event) => {
    if (!("time" in event)) return event;
    const time = typeof event.time === "string" ? Date.parse(event.time) / 1000 : NaN;
    return {...event, time: isNumber(time) ? time : null};
  });
}

// The columns and rows of results.csv. A line without an epoch number, or with
// a wrong number of cells, is left out; a cell that is not a number is null.
function epochsOf(text) {
  const [head, ...lines] = linesOf(text).map((line) => line.replaceAll("\r", "").split(","));
  if (!head) return {columns: [], rows: []};
  const rows = lines.filter((cells) => cells.length === head.length && /^ *\d{1,15}$/.test(cells[0])).map((cells) =>
    cells.map((cell) => (cell.trim() !== "" && isNumber(Number(cell)) ? Number(cell) : null)));
  return {columns: head, rows};
}

// The epoch with the best value of --best-metric, as the trainer computes it.
function bestOf({columns, rows}, metric) {
  const [map50, map, recall, precision] = ["metrics/mAP_0.5", "metrics/mAP_0.5:0.95", "metrics/recall", "metrics/precision"]
    .map((name) => columns.indexOf(name));
  const chosen = {mAP50: map50, mAP: map, recall, precision}[metric];
  const fitness = (row) => (chosen === undefined ? 0.1 * row[map50] + 0.9 * row[map] : row[chosen]);
  const best = rows.filter((row) => isNumber(row[map50]) && isNumber(row[map]))
    .reduce((a, b) => (!a || fitness(b) >= fitness(a) ? b : a), null);
  return best && {epoch: best[0], map50: best[map50], map: best[map]};
}

// Parses the texts of a document. This is slow, so each document is parsed only
// once.
function parsedOf(document) {
  const events = eventsOf(document.events);
  const summary = objectOf(document.summary);
  const generation = events.find((event) => event.event === "generation");
  const lastStep = objectOf(document.last_step);
  // A run that was killed, or still trains, has no summary.
  const peaks = [...listOf(summary?.peak_bytes), ...listOf(lastStep?.memory).map((rank) => rank?.measured_peak_bytes)];
  return {document, events, epochs: epochsOf(document.results), perClass: summary?.per_class ?? null, lastStep,
    peak: peaks.filter(isNumber).reduce((a, b) => Math.max(a ?? b, b), null), seconds: numberOr(summary?.wall_seconds, null),
    workers: new Map(listOf(generation?.workers).filter(Boolean).map((worker) => [worker.rank, worker]))};
}

// Exit codes of a run that can be continued: stopped at a step, and Ctrl-C.
const RESUMABLE = new Set([5, 130]);
const endOf = (exitCode, reason) => ({reason: reason || "",
  state: exitCode === 0 ? "finished" : RESUMABLE.has(exitCode) ? "stopped" : "failed"});

// The state of a run, and the reason for it.
function stateOf({document, events, lastStep}, live) {
  if (document.planned) return {state: "planned", reason: document.planned.verdict};
  if (live) {
    const isOver = live.state === "finished" || live.state === "failed";
    return isOver ? endOf(live.exit_code, live.reason) : {state: "running", reason: live.reason};
  }
  if (document.held) return {state: "running", reason: ""};
  const newest = events[0];
  if (newest?.event === "run_over") return endOf(numberOr(newest.exit_code, 0), newest.reason);
  if (!newest && !lastStep) return {state: "unknown", reason: ""};
  return {state: "stopped", reason: "no end of the run is written: it was killed"};
}

// The newest step of the document and of the fetched steps.
function newestStep({lastStep}, steps) {
  const row = steps?.rows.at(-1);
  if (!row) return lastStep || {};
  const fetched = {...Object.fromEntries(steps.columns.map((name, i) => [name, row[i]])), epoch_samples: steps.epoch_samples};
  return lastStep && lastStep.step > fetched.step ? lastStep : fetched;
}

function progressOf(parsed, live, steps, state) {
  const {config} = parsed.document;
  const newest = newestStep(parsed, steps);
  const now = live?.progress?.num_epochs > 0 ? live.progress : null;
  const batch = config?.batch || 0;
  const perEpoch = live?.progress?.steps_per_epoch || (batch > 0 ? Math.ceil(numberOr(newest.epoch_samples, 0) / batch) : 0);
  const epochs = config?.epochs || 0;
  let step = isNumber(newest.step) ? newest.step + 1 : 0;
  let total = perEpoch * epochs;
  if (config?.max_steps > 0) total = total > 0 ? Math.min(total, config.max_steps) : config.max_steps;
  if (now?.num_steps > 0) total = now.num_steps;
  if (now) step = Math.max(step, now.step);
  const epoch = now ? Math.min(now.epoch + 1, now.num_epochs)
    : Number.isSafeInteger(newest.epoch) ? newest.epoch + 1 : 0;
  const rate = now?.images_per_second > 0 ? now.images_per_second : numberOr(parsed.document.median_speed, null);
  const isTimed = state === "running" && rate > 0 && total >= step && batch > 0;
  return {epoch, epochs, step, steps: total, images_per_second: rate, phase: now ? now.phase : "",
    eta_seconds: isTimed ? ((total - step) * batch) / rate : null};
}

// The largest bytes of each rank: "measured" or "predicted". Fetched steps keep
// every extreme.
function peaksOf(steps, kind) {
  return new Map(listOf(steps?.memory).map((rank) => [rank.rank, rank[kind].reduce((a, b) => (b > a ? b : a), 0)]));
}

function ranksOf({document, document: {plan}, workers}, live, steps, state) {
  if (!plan) return [];
  const {data_parallel_size: data, pipeline_parallel_size: pipeline, spatial_parallel_size: spatial} = plan.layout;
  const [measured, predicted] = [peaksOf(steps, "measured"), peaksOf(steps, "predicted")];
  // A step's own prediction, as the terminal shows it. Before the first step it
  // is the plan's; a plan without a run has the peak over all its phases.
  const planned = (rank) => (document.planned ? plan.predicted_peak_bytes[rank] : plan.predicted_phase_bytes?.[rank]?.training);
  const members = new Map(listOf(live?.members).map((member) => [member.rank, member]));
  const isOver = live?.state === "finished" || live?.state === "failed";
  return Array.from({length: data * pipeline * spatial}, (_, rank) => {
    const member = members.get(rank);
    const worker = member || workers.get(rank);
    const isKnown = member && !isOver;
    return {rank, host: worker?.hostname ?? null, worker: worker?.worker_id ?? null,
      state: isKnown ? member.state : state,
      heartbeat_age: isKnown ? member.heartbeat_age_seconds : null,
      stage: Math.floor(rank / (spatial * data)), data: Math.floor(rank / spatial) % data, strip: rank % spatial,
      predicted_peak: predicted.get(rank) || planned(rank) || null,
      measured_peak: measured.get(rank) || (isKnown && member.measured_peak_bytes) || null};
  });
}

// The record that the sections draw. `live` is the run's own status, `steps`
// what /api/steps sent; both may be missing.
function recordOf(parsed, live = null, steps = null) {
  const {document, events, epochs, perClass} = parsed;
  const {config, plan} = document;
  const {state, reason} = stateOf(parsed, live);
  const isResumable = (state === "stopped" || state === "failed") && document.checkpoints.length > 0;
  return {
    choices: document.choices ?? {}, peak: parsed.peak, seconds: parsed.seconds, speed: numberOr(document.median_speed, null),
    id: document.id, directory: document.directory, version: live?.version || document.version, state, reason,
    command: document.planned ? document.planned.command : isResumable ? document.resume : null,
    progress: progressOf(parsed, live, steps, state),
    memory_limit: live?.memory_limit || config?.memory_limit || 0,
    epochs, best: bestOf(epochs, config?.best_metric), per_class: perClass, events, ranks: ranksOf(parsed, live, steps, state),
    layout: plan && {data: plan.layout.data_parallel_size, pipeline: plan.layout.pipeline_parallel_size,
      spatial: plan.layout.spatial_parallel_size, zero: plan.zero_stage, micro_batch: plan.micro_batch_size},
    pictures: document.pictures, pictures_note: document.pictures_note, checkpoints: document.checkpoints};
}
