// Tests how the page fetches events and pictures (deploy/page/page.js and
// sections.js). The document is a replacement that does nothing.
// node --test fetching_test.js
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const {test} = require("node:test");
const vm = require("node:vm");

// Returns an object that has every property and can be called. As a list and as a text it is empty.
function anything() {
  const own = {[Symbol.toPrimitive]: () => "", [Symbol.iterator]: function* () {}};
  return new Proxy(function () {}, {
    get: (_, key) => own[key] ??= anything(),
    set: (_, key, value) => { own[key] = value; return true; },
    apply: () => anything(),
  });
}

// Runs the page's scripts; returns the values that the scripts call `names`.
function pageWith(outside, names) {
  const watched = [];
  class Observer {
    constructor(seen) { this.seen = seen; }
    observe(target) { watched.push({target, seen: this.seen}); }
    disconnect() {}
  }
  const page = anything();
  page.getElementById = (id) => (id === "report-data" ? null : anything());
  const context = vm.createContext({document: page, location: {search: "", hash: ""}, history: {}, sessionStorage: {getItem: () => "t", setItem() {}},
    URLSearchParams, TextDecoderStream, performance, setTimeout, clearTimeout, console, window: anything(), getComputedStyle: anything,
    addEventListener() {}, matchMedia: anything, IntersectionObserver: Observer, ResizeObserver: Observer, ...outside});
  for (const name of ["record", "charts", "page", "sections"]) {
    vm.runInContext(fs.readFileSync(path.join(__dirname, `../../../deploy/page/${name}.js`), "utf8"), context);
  }
  return {watched, ...vm.runInContext(`({${names}})`, context)};
}

// A promise, with the functions by which the test resolves or rejects it.
function awaited() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, {resolve, reject}));
  return made;
}

// A replacement for an <img>, with the members that drawPicture() uses.
const picture = () => ({dataset: {}, src: "", decode: async () => {}, removeAttribute(name) { this[name] = ""; }});

test("a connection whose news cannot be taken is closed", async () => {
  let isCancelled = false;
  const body = new ReadableStream({start(stream) { stream.enqueue(new TextEncoder().encode("data: {}\n\n")); },
    cancel() { isCancelled = true; }});
  const {source} = pageWith({fetch: async () => ({ok: true, body})}, "source");
  await assert.rejects(source.follow(() => { throw new Error("wrong news"); }), /wrong news/);
  await new Promise((done) => setTimeout(done, 20));
  assert.equal(isCancelled, true);
});

test("a picture that is not wanted any more changes nothing", async () => {
  const answers = [];
  const {drawPicture} = pageWith({URL: {createObjectURL: (blob) => `blob:${blob}`, revokeObjectURL() {}},
    fetch: () => (answers.push(awaited()), answers.at(-1).promise)}, "drawPicture");
  const image = picture();
  image.src = "blob:before";
  const first = drawPicture(image, {name: "a.jpg", time: 1});
  assert.equal(image.src, "", "the former picture does not stand under the new name");
  const second = drawPicture(image, {name: "b.jpg", time: 1});
  const wanted = image.dataset.picture;
  answers[0].reject(new Error("gone"));
  await first;
  assert.equal(image.dataset.picture, wanted);
  answers[1].resolve({ok: true, blob: async () => "b"});
  await second;
  assert.equal(image.src, "blob:b");
});

test("a thumbnail is fetched once it is near", async () => {
  const asked = [];
  const {watched, thumbnail, near} = pageWith({URL: {createObjectURL: () => "blob:", revokeObjectURL() {}},
    fetch: async (address) => (asked.push(address), {ok: true, blob: async () => ""})}, "thumbnail, near: showWhenNear");
  const image = thumbnail();
  near(image, {name: "a.jpg", time: 1});
  assert.deepEqual(asked, []);
  const {target, seen} = watched.find((one) => one.target === image);
  seen([{target, isIntersecting: true}]);
  assert.equal(asked.length, 1);
  near(image, {name: "a.jpg", time: 2});
  assert.equal(asked.length, 2);
});
