// Tests how deploy/page/record.js reads a run's files.
// node --test record_test.js
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const {test} = require("node:test");
const vm = require("node:vm");

const script = path.join(__dirname, "../../../deploy/page/record.js");
// The script runs in this context. Lists of another context would not be equal to those of the test.
const {messagesIn, parsedOf, recordOf} = vm.runInThisContext(`(() => {${fs.readFileSync(script, "utf8")}
  return {messagesIn, parsedOf, recordOf};})()`);

const GENERATION = {event: "generation", step: 0, rank: -1, reason: "all joined", time: "2026-11-21T08:23:00.500Z",
  workers: [{rank: 0, worker_id: "vm-1-0", hostname: "vm"}, {rank: 1, worker_id: "vm-1-1", hostname: "vm"}]};
const OVER = {event: "run_over", step: 6, rank: -1, reason: "2 epochs", exit_code: 0, state: "finished", time: "2026-11-21T08:24:00.000Z"};
const lines = (...events) => events.map((event) => `${JSON.stringify(event)}\n`).join("");

// The document of a finished run of six steps and two processes.
function documentOf(changes = {}) {
  return {id: "exp", directory: "/runs/exp", version: "1.0", stamp: "", live: null, held: false, planned: null,
    config: {batch: 16, epochs: 2, max_steps: 0, memory_limit: 0},
    plan: {layout: {pipeline_parallel_size: 1, data_parallel_size: 2, spatial_parallel_size: 1}, micro_batch_size: 8, zero_stage: 1,
      predicted_peak_bytes: [9000, 0], predicted_phase_bytes: [{training: 2000}, {training: 0}], reason: ""},
    events: lines(GENERATION, OVER),
    results: "epoch,train/box_loss,metrics/mAP_0.5,metrics/mAP_0.5:0.95\n0,0.11,0.4,0.2\n1,0.1,0.5,0.3\n",
    summary: JSON.stringify({per_class: [{name: "</script><b>", map: 0.3}]}),
    last_step: JSON.stringify({step: 5, epoch: 1, samples: [], epoch_samples: 48, images_per_second: 3}), median_speed: 100,
    pictures: [], checkpoints: [6], resume: "headroom train --resume /runs/exp", ...changes};
}
const STEPS = {bytes: 1, total: 6, epoch_samples: 48, columns: ["step", "epoch", "images_per_second"], rows: [[4, 1, 90], [5, 1, 100]],
  memory: [{rank: 0, step: [4, 5], predicted: [null, 2000], measured: [1900, 1800]}, {rank: 1, step: [4, 5], predicted: [null, null], measured: [null, null]}]};
const read = (changes, live, steps) => recordOf(parsedOf(documentOf(changes)), live, steps);

test("a finished run is read from its files", () => {
  const run = read({}, null, STEPS);
  assert.equal(run.state, "finished");
  assert.equal(run.reason, "2 epochs");
  assert.equal(run.command, null);
  assert.deepEqual(run.progress, {epoch: 2, epochs: 2, step: 6, steps: 6, images_per_second: 100, phase: "", eta_seconds: null});
  assert.deepEqual(run.epochs.rows, [[0, 0.11, 0.4, 0.2], [1, 0.1, 0.5, 0.3]]);
  assert.deepEqual(run.best, {epoch: 1, map50: 0.5, map: 0.3});
  assert.deepEqual(run.layout, {data: 2, pipeline: 1, spatial: 1, zero: 1, micro_batch: 8});
  assert.deepEqual(run.events.map(({event, time}) => [event, time]), [["run_over", 1795249440], ["generation", 1795249380.5]]);
  assert.equal(run.per_class[0].name, "</script><b>");
});

test("the best epoch is that of the run's own metric", () => {
  const results = "epoch,metrics/recall,metrics/mAP_0.5,metrics/mAP_0.5:0.95\n0,0.9,0.4,0.2\n1,0.8,0.5,0.1\n2,0.7,0.3,0.3\n";
  const bestOf = (best_metric) => read({results, config: {...documentOf().config, best_metric}}).best.epoch;
  assert.deepEqual(["recall", "mAP50", "mAP", "fitness", undefined].map(bestOf), [0, 1, 2, 2, 2]);
});

test("ranks have their place, their worker and the largest of their steps", () => {
  const [first, second] = read({}, null, STEPS).ranks;
  assert.deepEqual(first, {rank: 0, host: "vm", worker: "vm-1-0", state: "finished", heartbeat_age: null, stage: 0, data: 0, strip: 0,
    predicted_peak: 2000, measured_peak: 1900});
  assert.equal(second.data, 1);
  assert.equal(second.worker, "vm-1-1");
  assert.equal(second.predicted_peak, null);
  assert.equal(second.measured_peak, null);
  // As in the terminal: what a step needs, not a validation that needs more.
  assert.equal(read({}, null, null).ranks[0].predicted_peak, 2000, "before the first step");
  const planned = {verdict: "fits", command: "headroom train"};
  assert.equal(read({planned}, null, null).ranks[0].predicted_peak, 9000, "a plan is judged by all its phases");
  const layout = {pipeline_parallel_size: 2, data_parallel_size: 2, spatial_parallel_size: 2};
  const last = read({plan: {...documentOf().plan, layout}}).ranks[6];
  assert.deepEqual([last.stage, last.data, last.strip], [1, 1, 0]);
});

test("a run without a written end was killed and can be continued", () => {
  const events = lines({event: "join", step: 0, reason: "a worker"});
  const run = read({events});
  assert.equal(run.state, "stopped");
  assert.equal(run.command, "headroom train --resume /runs/exp");
  assert.equal(read({events, checkpoints: []}).command, null);
  const held = read({events, held: true});
  assert.equal(held.state, "running");
  assert.equal(held.command, null);
  assert.equal(read({events: "", last_step: ""}).state, "unknown");
});

test("the exit code tells how a run ended", () => {
  for (const [exit_code, state] of [[0, "finished"], [5, "stopped"], [130, "stopped"], [4, "failed"]]) {
    assert.equal(read({events: lines({...OVER, exit_code})}).state, state);
  }
  assert.equal(read({events: lines(OVER, {event: "join"})}).state, "stopped", "a resumed run that was killed");
});

test("a live status outranks the files", () => {
  const member = {worker_id: "new-1", hostname: "other", rank: 1, heartbeat_age_seconds: 0.25, state: "running", measured_peak_bytes: 70};
  const live = {version: "2.0", state: "running", reason: "all 2 workers have joined", exit_code: 0, memory_limit: 4096, members: [member],
    progress: {step: 8, num_steps: 12, epoch: 2, num_epochs: 4, steps_per_epoch: 3, images_per_second: 50, phase: "train"}};
  const run = read({}, live, STEPS);
  assert.equal(run.state, "running");
  assert.equal(run.version, "2.0");
  assert.equal(run.memory_limit, 4096);
  assert.deepEqual(run.progress, {epoch: 3, epochs: 2, step: 8, steps: 12, images_per_second: 50, phase: "train", eta_seconds: 4 * 16 / 50});
  assert.equal(run.ranks[1].host, "other");
  assert.equal(run.ranks[1].heartbeat_age, 0.25);
  assert.equal(run.ranks[1].measured_peak, 70);
  assert.equal(run.ranks[0].measured_peak, 1900);
  const over = read({}, {...live, state: "failed", exit_code: 130, reason: "Ctrl-C"}, STEPS);
  assert.equal(over.state, "stopped");
  assert.equal(over.ranks[1].state, "stopped");
  assert.equal(over.ranks[1].heartbeat_age, null);
});

test("incomplete and wrong lines are left out", () => {
  const head = "epoch,metrics/mAP_0.5,metrics/mAP_0.5:0.95\n";
  const run = read({results: `${head}1e300,0.5,0.3\n   1, 0.5, nan\r\n2,0.5\n3,,0.2\n4,0.1,0.`,
    events: '{"event":"join","reason":"a\\ufffd"}\nno JSON\n[1]\n{"event":"half'});
  assert.deepEqual(run.epochs.rows, [[1, 0.5, null], [3, null, 0.2]]);
  assert.equal(run.best, null);
  assert.equal(run.events.length, 1);
});

test("a folder with broken files has a record with fewer parts", () => {
  const run = read({config: null, plan: null, results: "", summary: "[]", last_step: "{", events: lines({event: "join", time: "soon"})});
  assert.equal(run.state, "stopped");
  assert.equal(run.layout, null);
  assert.deepEqual(run.ranks, []);
  assert.equal(run.per_class, null);
  assert.equal(run.events[0].time, null);
  assert.equal(run.progress.step, 0);
});

test("nesting that is too deep is left out", () => {
  const nested = (levels) => "[".repeat(levels) + "]".repeat(levels);
  for (const levels of [70, 200000]) {
    const run = read({events: `${lines(OVER)}{"event":"odd","a":${nested(levels)}}\n`, summary: `{"per_class":[${nested(levels)}]}`});
    assert.equal(run.events.length, 1);
    assert.equal(run.per_class, null);
  }
  assert.equal(read({events: `{"event":"odd","a":${nested(60)}}\n`}).events.length, 1);
});

test("the newest step is the document's or the fetched one, whichever is later", () => {
  assert.equal(read({}, null, {...STEPS, rows: [[9, 3, 80]]}).progress.step, 10);
  assert.equal(read({}, null, {...STEPS, rows: [[2, 0, 80]]}).progress.step, 6);
  assert.equal(read({last_step: ""}, null, STEPS).progress.steps, 6);
});

test("a run that stops early has fewer steps than its epochs", () => {
  const config = {...documentOf().config, max_steps: 4};
  assert.equal(read({config}).progress.steps, 4);
  assert.equal(read({config, last_step: ""}).progress.steps, 4);
});

test("a planned run has its command and no progress", () => {
  const run = read({planned: {verdict: "it fits", command: "headroom train"}, events: undefined, results: undefined, summary: undefined,
    last_step: undefined});
  assert.equal(run.state, "planned");
  assert.equal(run.reason, "it fits");
  assert.equal(run.command, "headroom train");
  assert.equal(run.ranks[0].predicted_peak, 9000);
});

test("messages of an event stream are taken when they are whole", () => {
  const first = messagesIn('event: changed\ndata: {"a":1}\n\n: alive\n\nevent: changed\nda');
  assert.deepEqual(first, {messages: ['{"a":1}'], rest: "event: changed\nda"});
  assert.deepEqual(messagesIn(`${first.rest}ta: 2\n\n`), {messages: ["2"], rest: ""});
  assert.deepEqual(messagesIn(""), {messages: [], rest: ""});
});
