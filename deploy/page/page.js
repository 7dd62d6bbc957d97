"use strict";
// The state of the page and the times at which it is drawn. The data are
// fetched from the program, or taken from a report. Live numbers arrive as
// events; an event also names what must be fetched again. Sections
// (sections.js) are drawn at most once a second.

const POINTS = 1500;
const by = (id) => document.getElementById(id);
const setText = (node, text) => {
  if (node.textContent !== clean(text)) node.textContent = clean(text);
};
const listOf = (value) => (Array.isArray(value) ? value : []);

const state = {runs: [], live: null, id: null, run: null, steps: null, timelines: new Map(), compared: new Map(),
  ticked: new Set(), rank: 0, show: "all", kind: "", eventsShown: 25, progress: null, lost: null, heard: 0};

// ---- data sources ----

class Served {
  async stop() {
    const answer = await fetch("/api/stop", {method: "POST", headers: {"X-Headroom-Control": "stop"}});
    if (!answer.ok) throw new Error(await answer.text());
  }
  async get(path) {
    const answer = await fetch(path, {signal: AbortSignal.timeout(20000)});
    if (answer.status === 403) {
      throw new Error("This browser may not read the run: open the address again that headroom printed.");
    }
    if (!answer.ok) throw new Error(`${path.split("?")[0]} answered ${answer.status}`);
    return answer.json();
  }
  runs() { return this.get("/api/runs"); }
  run(id) { return this.get(`/api/run?id=${encodeURIComponent(id)}`); }
  steps(id, from) {
    return this.get(`/api/steps?id=${encodeURIComponent(id)}&points=${POINTS}${from > 0 ? `&from=${from}` : ""}`);
  }
  timeline(id, rank) { return this.get(`/api/timeline?id=${encodeURIComponent(id)}&rank=${rank}`); }
}

// A report contains its data in the page itself.
class Written {
  constructor(report) { this.entries = new Map(listOf(report.runs).map((entry) => [entry.run.id, entry])); }
  async runs() {
    return {live: null, runs: [...this.entries.values()].map(({run, summary}) => ({...summaryOf(run), ...summary}))};
  }
  async run(id) { return this.entries.get(id).run; }
  async steps(id) { return this.entries.get(id).steps; }
  async timeline(id, rank) {
    return listOf(this.entries.get(id).timelines).find((timeline) => timeline && timeline.rank === rank) ||
      {rank, peak: null, points: [], why_not: "This report has no picture of this rank's step; its first ranks have one."};
  }
}

function summaryOf(run) {
  const settings = new Map(listOf(run.settings));
  const {columns, rows} = run.epochs;
  const [map50, map] = ["metrics/mAP_0.5", "metrics/mAP_0.5:0.95"].map((name) => columns.indexOf(name));
  const fitness = (row) => 0.1 * row[map50] + 0.9 * row[map];
  const best = rows.filter((row) => isNumber(row[map])).reduce((a, b) => (!a || fitness(b) > fitness(a) ? b : a), null);
  const number = (name) => (settings.has(name) && settings.get(name) !== "" ? Number(settings.get(name)) : null);
  return {id: run.id, state: run.state, model: settings.get("cfg") || settings.get("weights") || null,
    img: number("img"), batch: number("batch"), processes: listOf(run.ranks).length, ...run.progress,
    best: best && {epoch: best[0], map50: best[map50], map: best[map]}};
}

const report = by("report-data");
const source = report ? new Written(JSON.parse(report.textContent)) : new Served();

// ---- drawing at most once a second ----

const sections = {};
const dirty = new Set();
let drawnAt = 0;
let drawTimer = null;

function redraw(...names) {
  for (const name of names.length ? names : Object.keys(sections)) dirty.add(name);
  if (drawTimer === null) drawTimer = setTimeout(drawDirty, Math.max(0, drawnAt + 1000 - performance.now()));
}

function drawNow(...names) {
  for (const name of names) {
    dirty.delete(name);
    sections[name]();
  }
}

function drawDirty() {
  drawTimer = null;
  if (document.hidden || !state.run) return;  // drawn when it is visible again
  drawnAt = performance.now();
  const names = [...dirty];
  dirty.clear();
  for (const name of names) sections[name]();
}
document.addEventListener("visibilitychange", () => redraw("summary"));

// ---- fetching missing data ----

// Wraps an action so that calls never overlap: a call during an action runs
// after it, once. After a slow answer it waits longer before the next.
function patient(act) {
  let isBusy = false;
  let isWanted = false;
  const go = async () => {
    if (isBusy) {
      isWanted = true;
      return;
    }
    isBusy = true;
    isWanted = false;
    const from = performance.now();
    try {
      await act();
    } catch (error) {
      setLost(error.message);
    }
    setTimeout(() => { isBusy = false; if (isWanted) go(); }, Math.max(1000, 4 * (performance.now() - from)));
  };
  return go;
}

const fetchRun = patient(async () => {
  const id = state.id;
  const run = await source.run(id);
  if (id === state.id) takeRun(run);
});

const fetchSteps = patient(async () => {
  const [id, have] = [state.id, state.steps];
  const last = have && have.rows.length ? have.rows[have.rows.length - 1][have.columns.indexOf("step")] : -1;
  // Only later steps are fetched and added. All steps are fetched again after
  // events, which may have repeated a step, and before the added steps
  // outnumber the thinned rest of a long run.
  const isAddition = have && !have.isOld && last >= 0 && have.added < POINTS / (have.isThinned ? 10 : 1);
  const got = await source.steps(id, isAddition ? last + 1 : 0);
  if (id !== state.id) return;
  state.steps = isAddition ? joined(have, got, last) : {...got, added: 0, isThinned: got.total > got.rows.length};
  heard();
  redraw("steps", "memory");
});

const fetchRuns = patient(async () => takeRuns(await source.runs()));

function joined(have, got, last) {
  const at = have.columns.indexOf("step");
  const memory = new Map(listOf(have.memory).map((one) => [one.rank, one]));
  for (const more of listOf(got.memory)) {
    const old = memory.get(more.rank) || {rank: more.rank, step: [], predicted: [], measured: []};
    const isNew = more.step.map((step) => step > (old.step.length ? old.step[old.step.length - 1] : -1));
    const added = (name) => [...old[name], ...more[name].filter((_, i) => isNew[i])];
    memory.set(more.rank, {rank: more.rank, step: added("step"), predicted: added("predicted"), measured: added("measured")});
  }
  const later = got.rows.filter((row) => row[at] > last);
  return {...got, rows: [...have.rows, ...later], memory: [...memory.values()], added: have.added + later.length,
    isThinned: have.isThinned};
}

function takeRuns(answer) {
  state.runs = listOf(answer.runs);
  state.live = answer.live;
  state.mayStop = answer.may_stop;
  if (state.lost && state.run) {
    fetchRun();
    fetchSteps();
  }
  heard();
  if (state.id === null && state.runs.length) {
    const wanted = [remembered("run"), state.live].find((id) => state.runs.some((run) => run.id === id));
    openRun(wanted || [...state.runs].sort((a, b) => (b.started || 0) - (a.started || 0))[0].id);
  }
  if (!state.runs.length) showNotice("There is no run in this folder yet.");
  for (const run of state.runs) {
    if (state.ticked.has(run.id) && (run.state === "running" || !state.compared.has(run.id))) compareRun(run.id);
  }
  redraw("runs");
}

function takeRun(run) {
  const before = state.run;
  const events = (one) => JSON.stringify(listOf(one.events).slice(-1)) + listOf(one.events).length;
  if (state.steps && before && events(before) !== events(run)) state.steps.isOld = true;
  if (before && JSON.stringify(before.plan) !== JSON.stringify(run.plan)) state.timelines.clear();
  state.run = run;
  state.progress = run.progress || {};
  if (!listOf(run.ranks).some((rank) => rank.rank === state.rank)) state.rank = run.ranks[0]?.rank ?? 0;
  heard();
  by("notice").hidden = true;
  fetchTimeline();
  redraw();
}

const asked = new Set();
async function fetchTimeline() {
  const [id, rank] = [state.id, state.rank];
  if (!listOf(state.run.ranks).some((one) => one.rank === rank)) return;  // there is no plan yet
  const key = `${id}/${rank}`;
  if (state.timelines.has(key) || asked.has(key)) return;
  asked.add(key);
  try {
    const timeline = await source.timeline(id, rank);
    if (state.timelines.size > 16) state.timelines.clear();
    state.timelines.set(key, timeline);
  } catch {
    // Fetched again at the run's next change.
  }
  asked.delete(key);
  drawNow("memory");
}

function openRun(id) {
  if (state.id === id) return;
  Object.assign(state, {id, run: null, steps: null, rank: 0, eventsShown: 25, eventsSeen: null});
  showAll();
  state.timelines.clear();
  remember("run", id);
  fetchRun();
  fetchSteps();
  listen();
  redraw("runs");
}

async function compareRun(id) {
  try {
    state.compared.set(id, await source.run(id));
  } catch {
    // Fetched again with the next list of runs.
  }
  for (const old of [...state.compared.keys()]) if (!state.ticked.has(old)) state.compared.delete(old);
  redraw("compare");
}

// ---- live events ----

let events = null;
function listen() {
  if (report) return;
  if (events) events.close();
  const mine = events = new EventSource(`/events?id=${encodeURIComponent(state.id)}`);
  mine.onopen = () => {
    heard();
    fetchRun();
    fetchSteps();
  };
  mine.addEventListener("changed", (event) => {
    const now = JSON.parse(event.data);
    heard();
    if (!state.run || mine !== events) return;
    const {run} = state;
    const isOther = now.state !== run.state || now.epochs !== run.epochs.rows.length ||
      now.events !== state.eventsSeen;
    state.eventsSeen = now.events;
    state.progress = run.progress = now.progress || run.progress;
    if (now.ranks && now.ranks.length === run.ranks.length) {
      run.ranks = run.ranks.map((rank, i) => ({...rank, ...now.ranks[i]}));
    }
    if (isOther) fetchRun();
    if (isOther || now.steps !== state.steps?.total) fetchSteps();
    redraw("summary", "layout", "memory");
  });
  mine.onerror = () => {
    setLost("the connection is gone");
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (mine === events) listen(); }, 5000);
  };
}

function heard() {
  state.heard = Date.now();
  state.lost = null;
  showConnection();
}

function setLost(words) {
  if (!state.lost) state.lost = {since: state.heard, words};
  if (!state.run) showNotice(words);
  showConnection();
  redraw("summary");
}

function showNotice(words) {
  by("notice").hidden = false;
  setText(by("notice"), words);
}

function showConnection() {
  const {lost} = state;
  document.body.classList.toggle("stale", Boolean(lost));
  const isLive = state.run?.state === "running";
  setText(by("connection"), report ? "report" : lost ? `Connection lost (${lost.words}). ` +
    `Shown: as of ${Format.time(lost.since / 1000)}. Trying again.` : isLive ? "live" : "connected");
}

function remembered(name) {
  try {
    return sessionStorage.getItem(`headroom-${name}`);
  } catch {
    return null;
  }
}

function remember(name, value) {
  try {
    sessionStorage.setItem(`headroom-${name}`, value);
  } catch {
    // Without storage the defaults are used next time.
  }
}

// ---- start ----

function chooseTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  remember("theme", theme);
}

document.addEventListener("DOMContentLoaded", () => {
  by("theme").value = remembered("theme") || "";
  chooseTheme(by("theme").value);
  by("theme").addEventListener("change", (event) => chooseTheme(event.target.value));
  by("run-select").addEventListener("change", (event) => openRun(event.target.value));
  fetchRuns();
  if (!report) setInterval(fetchRuns, 30000);
});
