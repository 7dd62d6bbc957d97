"use strict";
// The state of the page and the times at which it is drawn. The program sends
// news: the runs, a stamp of each run's files, and the live run's status. The
// page fetches a run's document again when its stamp changes, and its steps
// when steps.jsonl grows. A report contains all these data. Sections
// (sections.js) are drawn at most once a second.

const POINTS = 1500;
const by = (id) => document.getElementById(id);
const setText = (node, text) => {
  if (node.textContent !== clean(text)) node.textContent = clean(text);
};

// `run` is the record of the opened run (record.js), `parsed` its document,
// `plan` its settings and plan in words. `briefs` has a record of every run for
// the table and the comparison.
const state = {news: {runs: [], live: null, status: null}, id: null, parsed: null, plan: null, run: null, steps: null,
  timelines: new Map(), briefs: new Map(), ticked: new Set(), rank: 0, show: "all", kind: "", eventsShown: 25, lost: null,
  heard: 0};

// ---- data sources ----

// The address that headroom prints contains the token. The tab keeps it, and
// every request has it in a header: a cookie would be sent to every port of the
// machine. It is removed from the address, which people copy.
function takeToken() {
  const given = [location.search, location.hash].map((part) => new URLSearchParams(part.slice(1)).get("token")).find(Boolean);
  if (!given) return remembered("token") || "";
  remember("token", given);
  history.replaceState(null, "", location.pathname);
  return given;
}

class Served {
  constructor() {
    this.token = takeToken();
  }
  async ask(path, {headers, ...options} = {}) {
    const answer = await fetch(path, {...options, headers: {...headers, "X-Headroom-Token": this.token}});
    if (answer.ok) return answer;
    throw new Error(answer.status === 403
      ? "This tab may not read the run: open the address again that headroom printed."
      : `${path.split("?")[0]} answered ${answer.status}`);
  }
  stop() { return this.ask("/api/stop", {method: "POST", headers: {"X-Headroom-Control": "stop"}}); }
  async get(path, words) {
    return (await this.ask(`${path}?${new URLSearchParams(words)}`, {signal: AbortSignal.timeout(20000)})).json();
  }
  // The picture's bytes: an <img> could not send the token. The address has the
  // time, because the picture may change.
  async picture(id, {name, time}) {
    return (await this.ask(`/files?${new URLSearchParams({id, name, time})}`)).blob();
  }
  // Calls `take` with the data of each event until the server ends the stream.
  async follow(take) {
    const reader = (await this.ask("/events")).body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      heard();
      for (let waiting = ""; ;) {
        const {done, value} = await reader.read();
        if (done) return;
        const {messages, rest} = messagesIn(waiting + value);
        waiting = rest;
        messages.forEach((message) => take(JSON.parse(message)));
      }
    } finally {
      reader.cancel().catch(() => {});  // closes the connection if `take` failed
    }
  }
  run(id) { return this.get("/api/run", {id}); }
  brief(id) { return this.get("/api/run", {id, events: 1}); }
  plan(id) { return this.get("/api/plan", {id}); }
  steps(id, from) { return this.get("/api/steps", {id, points: POINTS, from}); }
  timeline(id, rank) { return this.get("/api/timeline", {id, rank}); }
}

// A report contains its data in the page itself.
class Written {
  constructor({runs, pictures}) {
    this.entries = new Map(runs.map((entry) => [entry.run.id, entry]));
    for (const {run, name, url, smaller} of pictures) {
      Object.assign(runs[run].run.pictures.find((one) => one.name === name) || {}, {url, smaller});
    }
    for (const {run} of runs) {
      const all = run.pictures.length;
      run.pictures = run.pictures.filter(({url}) => url);
      const counts = [[run.pictures.filter(({smaller}) => smaller).length, "made smaller"], [all - run.pictures.length, "left out"]];
      const words = counts.filter(([count]) => count > 0).map(([count, what]) => `${count} ${what}`);
      run.pictures_note = words.length > 0 && `Of ${Format.count(all, "picture")}, ${words.join(" and ")}, for a report has at most ` +
        "10 MB. The run's folder has them whole.";
    }
  }
  news() {
    return {live: null, status: null, runs: [...this.entries.values()].map(({run, steps}) => ({...run, steps: steps.bytes}))};
  }
  async run(id) { return this.entries.get(id).run; }
  brief(id) { return this.run(id); }
  async plan(id) { return this.entries.get(id).plan; }
  async steps(id) { return this.entries.get(id).steps; }
  async timeline(id, rank) {
    return listOf(this.entries.get(id).timelines).find((timeline) => timeline && timeline.rank === rank) ||
      {rank, peak: null, points: [], why_not: "This report has no picture of this rank's step; its first ranks have one."};
  }
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

// Wraps an action so that its runs never overlap. Calls during a run cause one
// more run after it. After a slow run it waits longer before the next run.
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

const fetchPlan = patient(async () => {
  const id = state.id;
  const plan = await source.plan(id);
  if (id !== state.id) return;
  state.plan = plan;
  redraw("plan", "settings");
});

const fetchSteps = patient(async () => {
  const [id, have] = [state.id, state.steps];
  const last = have && have.rows.length ? have.rows[have.rows.length - 1][have.columns.indexOf("step")] : -1;
  // Only later steps are fetched and added. All steps are fetched again after
  // events, which may have repeated a step, and when the added steps become too
  // many beside the thinned older steps of a long run.
  const isAddition = have && !have.isOld && last >= 0 && have.added < POINTS / (have.isThinned ? 10 : 1);
  const got = await source.steps(id, isAddition ? last + 1 : 0);
  if (id !== state.id) return;
  state.steps = isAddition ? joined(have, got, last) : {...got, added: 0, isThinned: got.total > got.rows.length};
  heard();
  makeRecord();
  redraw("steps", "memory", "summary", "layout");
  fetchChanged();
});

// Fetches the runs of the table whose files have changed. A run that still
// trains is also fetched twice a minute.
const fetchBriefs = patient(async () => {
  const {runs} = state.news;
  if (runs.length < 2) return;
  const old = runs.filter(({id, stamp, held, steps}) => {
    const brief = state.briefs.get(id);
    return !brief || brief.stamp !== stamp || brief.held !== held || (brief.steps !== steps && Date.now() - brief.at > 30000);
  });
  const inParallel = 6;
  for (let i = 0; i < old.length; i += inParallel) {
    await Promise.all(old.slice(i, i + inParallel).map(fetchBrief));
    redraw("runs", "compare");
  }
});

async function fetchBrief({id, steps}) {
  try {
    const document = await source.brief(id);
    const parsed = parsedOf(document);
    state.briefs.set(id, {stamp: document.stamp, held: document.held, steps, at: Date.now(), parsed,
      record: recordOf(parsed, document.live)});
  } catch {
    // The value is fetched again with the next news.
  }
}

// Fetches what has changed since it was read.
function fetchChanged() {
  const now = state.news.runs.find(({id}) => id === state.id);
  if (!now) return;
  const {stamp, held} = state.parsed?.document || {};
  if (now.stamp !== stamp || now.held !== held) fetchRun();
  if (now.steps !== state.steps?.bytes) fetchSteps();
}

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

function takeNews(news) {
  state.news = {...news, runs: listOf(news.runs)};
  heard();
  const {runs, live} = state.news;
  if (!runs.length) showNotice("There is no run in this folder yet.");
  if (state.id === null && runs.length) {
    openRun([remembered("run"), live].find((id) => runs.some((run) => run.id === id)) ?? runs[0].id);
  }
  fetchChanged();
  fetchBriefs();
  makeRecord();
  redraw("summary", "layout", "memory", "runs");
}

function makeRecord() {
  const {parsed, news, id, steps} = state;
  if (!parsed) return;
  const live = report ? parsed.document.live : news.live === id ? news.status : null;
  state.run = recordOf(parsed, live, steps);
}

function takeRun(run) {
  const before = state.parsed;
  const parsed = state.parsed = parsedOf(run);
  const newest = ({events}) => JSON.stringify(events[0]) + events.length;
  if (state.steps && before && newest(before) !== newest(parsed)) state.steps.isOld = true;
  const definition = ({document: {plan, config}}) => JSON.stringify([plan, config]);
  if (!before || definition(before) !== definition(parsed)) {
    state.timelines.clear();
    fetchPlan();
  }
  makeRecord();
  if (!state.run.ranks.some((rank) => rank.rank === state.rank)) state.rank = state.run.ranks[0]?.rank ?? 0;
  heard();
  by("notice").hidden = true;
  fetchTimeline();
  redraw();
  fetchChanged();
}

const asked = new Set();
async function fetchTimeline() {
  const [id, rank] = [state.id, state.rank];
  if (!state.run.ranks.some((one) => one.rank === rank)) return;  // there is no plan yet
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
  Object.assign(state, {id, parsed: null, plan: null, run: null, steps: null, rank: 0, eventsShown: 25});
  showAll();
  state.timelines.clear();
  remember("run", id);
  fetchRun();
  fetchSteps();
  redraw("runs");
}

// ---- news ----

async function listen() {
  try {
    await source.follow(takeNews);
    setLost("the connection is gone");
  } catch (error) {
    // If the server cannot be reached, fetch throws a TypeError, whose text
    // differs between browsers and tells the reader less.
    setLost(error instanceof TypeError ? "the connection is gone" : error.message);
  }
  setTimeout(listen, 3000);
}

function heard() {
  state.heard = Date.now();
  state.lost = null;
  showConnection();
}

function setLost(words) {
  state.lost = {since: state.lost?.since ?? state.heard, words};
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
  if (report) takeNews(source.news());
  else listen();
});
