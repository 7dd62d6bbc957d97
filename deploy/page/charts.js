"use strict";
// Tools for drawing the page: formats for numbers and units, elements that
// insert data only as text, and one class for all charts.

// Control and direction characters could reorder the text around them.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const UNKNOWN = "not known";

const clean = (value) => String(value).replace(UNSAFE, "\ufffd");

const Format = {
  number(value, digits = 0) {
    if (!isNumber(value)) return UNKNOWN;
    return value.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay: "negative"});
  },
  // Enough digits to distinguish neighbouring values of any size.
  value(value) {
    if (!isNumber(value)) return UNKNOWN;
    const size = Math.abs(value);
    if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(2);
    return Format.number(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 4);
  },
  share: (value) => Format.number(value, 3),
  bytes(value) {
    if (!isNumber(value)) return UNKNOWN;
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < names.length - 1) {
      value /= 1024;
      ++unit;
    }
    // As many digits as the program prints.
    const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return `${Number(value.toFixed(digits)).toLocaleString("en")} ${names[unit]}`;
  },
  rate: (value) => (isNumber(value) ? `${Format.number(value, value < 1000 ? 1 : 0)} img/s` : UNKNOWN),
  duration(seconds) {
    if (!isNumber(seconds)) return UNKNOWN;
    if (seconds < 10) return `${Format.number(seconds, 1)} s`;
    if (seconds < 90) return `${Math.round(seconds)} s`;
    const minutes = Math.round(seconds / 60);
    if (minutes < 90) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    if (hours < 48) return `${hours} h ${minutes % 60} min`;
    return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  },
  time(seconds) {
    if (!isNumber(seconds)) return UNKNOWN;
    return new Date(seconds * 1000).toLocaleString("en-GB", {
      day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit"});
  },
  count: (number, one, many = one + "s") => `${Format.number(number)} ${number === 1 ? one : many}`,
};

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = clean(value);
    else if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else node.setAttribute(name, value === true ? "" : clean(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

let lastId = 0;
const newId = (name) => `${name}-${++lastId}`;

// Makes the children of `parent` match `items`, in order. A node with a known
// key is reused, which keeps its focus, open details and scroll position.
function reconcile(parent, items, keyOf, make, update) {
  const old = parent.nodesByKey || new Map();
  const kept = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    if (kept.has(key)) continue;
    const node = old.get(key) || make(item);
    if (update) update(node, item);
    kept.set(key, node);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  for (const [key, node] of old) if (!kept.has(key)) node.remove();
  parent.nodesByKey = kept;
}

// A table that is sorted by a click on a column: {name, value(item),
// show(item), left}.
class DataTable {
  constructor(host, {caption, columns, sort = null, descending = false, most = 1000}) {
    Object.assign(this, {columns, sort, descending, most, items: []});
    this.body = el("tbody");
    this.buttons = columns.map((column, index) =>
      column.name === "" ? null : el("button", {type: "button", class: "sort", text: column.name,
        on: {click: () => this.sortBy(index)}}));
    this.heads = columns.map((column, index) =>
      this.buttons[index] ? el("th", {scope: "col", class: column.left ? "left" : null}, this.buttons[index])
        : el("td", {class: "left"}));
    this.note = el("p", {class: "soft", hidden: true});
    host.append(el("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": caption},
      el("table", null, el("caption", {class: "hidden", text: caption}),
        el("thead", null, el("tr", null, ...this.heads)), this.body)), this.note);
  }

  sortBy(index) {
    this.descending = this.sort === index ? !this.descending : false;
    this.sort = index;
    this.update(this.items);
  }

  update(items, keyOf = null) {
    this.items = items;
    if (keyOf) this.keyOf = keyOf;
    let shown = [...items];
    if (this.sort !== null) {
      const {value} = this.columns[this.sort];
      const order = (a, b) => (typeof a === "string" || typeof b === "string"
        ? String(a).localeCompare(String(b), "en", {numeric: true}) : a - b);
      const isMissing = (v) => v === null || v === undefined || Number.isNaN(v);
      shown.sort((a, b) => {
        const [left, right] = [value(a), value(b)];
        if (isMissing(left) || isMissing(right)) return isMissing(left) - isMissing(right);
        return this.descending ? order(right, left) : order(left, right);
      });
    }
    this.heads.forEach((head, index) => {
      if (!this.buttons[index]) return;
      head.setAttribute("aria-sort", this.sort === index ? (this.descending ? "descending" : "ascending") : "none");
    });
    const left_out = shown.length - this.most;
    if (left_out > 0) {
      const every = (shown.length - 1) / (this.most - 1);
      shown = Array.from({length: this.most}, (_, i) => shown[Math.round(i * every)]);
    }
    this.note.hidden = left_out <= 0;
    this.note.textContent = `${Format.number(this.most)} of ${Format.number(items.length)} lines, evenly chosen.`;
    const cells = (item) => this.columns.map((column) => {
      const shows = column.show(item);
      const kind = column.left ? "left" : null;
      return shows instanceof Node ? el("td", {class: kind}, shows)
        : el(column.head ? "th" : "td", {class: kind, scope: column.head ? "row" : null, text: shows});
    });
    if (!this.keyOf) {
      this.body.replaceChildren(...shown.map((item) => el("tr", null, ...cells(item))));
      return;
    }
    reconcile(this.body, shown, this.keyOf, (item) => el("tr", null, ...cells(item)), (line, item) => {
      this.columns.forEach((column, index) => {
        const shows = column.show(item, line.cells[index]);
        if (!(shows instanceof Node) && line.cells[index].textContent !== clean(shows)) {
          line.cells[index].textContent = clean(shows);
        }
      });
    });
  }
}

// The positions of about `count` round numbers from `low` to `high`.
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= raw * 0.7) || 10);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) found.push(i * step + 0);
  return found;
}

// The index of the value nearest to `at` in an ascending list.
function nearest(xs, at) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < at) low = middle;
    else high = middle;
  }
  return high >= 0 && Math.abs(xs[low] - at) <= Math.abs(xs[high] - at) ? low : high;
}

// Curves or stacked areas over an ascending x.
// A series is {name, colour 1 to 6, dash, xs, ys, base (for areas), soft (no
// legend), bridges (drawn across unknown values), show(index)}; a marker is {x,
// kind: "fault" or "checkpoint", text}; a level is {y, name}; a band is {from,
// to, name}. With pointer or keys the user reads values and selects a range of
// x, which is kept when new data arrive.
class Chart {
  constructor(host, {title, describe = "", xName, format = Format.value, xFormat = Format.number,
    height = 230, isLog = false, fromZero = false, unitStep = 0, level = 3}) {
    Object.assign(this, {title, describe, xName, format, xFormat, height, isLog, fromZero, unitStep});
    this.data = {series: [], markers: [], levels: [], bands: []};
    this.hiddenNames = new Set();
    this.view = null;
    this.cursor = null;
    const heading = newId("chart");
    this.picture = svg("svg", {role: "img", focusable: "false"});
    this.tip = el("div", {class: "tip", hidden: true});
    this.spoken = el("p", {class: "hidden", "aria-live": "polite"});
    this.empty = el("p", {class: "empty soft", text: "Nothing to draw yet."});
    this.selection = el("div", {class: "selection", hidden: true});
    this.surface = el("div", {class: "surface", tabindex: "0", role: "group",
      "aria-label": `${title}: arrow keys read values, plus and minus zoom, 0 shows all`});
    this.box = el("div", {class: "chart-box"}, this.picture, this.empty, this.selection, this.surface, this.tip);
    this.reset = el("button", {type: "button", class: "small", text: "Show all", hidden: true,
      on: {click: () => { this.choose(null); this.surface.focus(); }}});
    this.controls = el("div", {class: "controls"}, this.reset);
    this.legend = el("div", {class: "legend"});
    this.tablePlace = el("div");
    this.details = el("details", {class: "as-table"}, el("summary", {text: `Table: ${title}`}), this.tablePlace);
    this.details.addEventListener("toggle", () => this.drawTable());
    this.figure = el("figure", {class: "chart card", "aria-labelledby": heading},
      el("div", {class: "chart-head"}, el(`h${level}`, {id: heading, text: title}), this.controls),
      this.box, this.legend, this.spoken, this.details);
    host.append(this.figure);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  update(data) {
    this.data = {markers: [], levels: [], bands: [], ...data};
    this.draw();
    this.drawTable();
  }

  shown() {
    return this.data.series.filter((series) => !this.hiddenNames.has(series.group || series.name));
  }

  // Returns the range of x that covers all series and the caller's range.
  extent() {
    let [low, high] = this.data.range || [Infinity, -Infinity];
    for (const {xs} of this.data.series) {
      if (xs.length === 0) continue;
      low = Math.min(low, xs[0]);
      high = Math.max(high, xs[xs.length - 1] + this.unitStep);
    }
    if (low === high) [low, high] = [low - 0.5, high + 0.5];
    return [low, high];
  }

  choose(view) {
    if (view) {
      const [low, high] = this.extent();
      view = [Math.max(low, view[0]), Math.min(high, view[1])];
      if (!(view[1] - view[0] > 0) || (view[0] <= low && view[1] >= high)) view = null;
    }
    this.view = view;
    if (this.onView) this.onView(view);
    this.draw();
  }

  yRange(x0, x1) {
    let low = Infinity;
    let high = -Infinity;
    const see = (y) => {
      if (!isNumber(y) || (this.isLog && y <= 0)) return;
      low = Math.min(low, y);
      high = Math.max(high, y);
    };
    for (const {xs, ys, base} of this.shown()) {
      for (let i = 0; i < xs.length; ++i) if (xs[i] >= x0 && xs[i] <= x1) see(ys[i]);
      if (base) see(0);
    }
    if (low === Infinity) return null;
    for (const {y} of this.data.levels) if (this.fromZero) see(y);
    if (this.isLog) return [low / 1.15, high * 1.15];
    if (this.fromZero) low = Math.min(0, low);
    const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    return [this.fromZero || low === 0 ? low : low - room, high + room];
  }

  yTicks(low, high) {
    if (!this.isLog) {
      // Ticks for bytes are powers of two, for other units powers of ten.
      const unit = this.format === Format.bytes ? 1024 ** Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024)) : 1;
      return ticks(low / unit, high / unit, 4).map((tick) => tick * unit);
    }
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
      for (const factor of Math.log10(high / low) < 2 ? [1, 2, 5] : [1]) found.push(factor * 10 ** power);
    }
    return found.filter((tick) => tick >= low && tick <= high);
  }

  draw() {
    const width = this.box.clientWidth;
    if (width === 0) return;
    const [x0, x1] = this.view || this.extent();
    const range = x0 < x1 ? this.yRange(x0, x1) : null;
    this.empty.hidden = range !== null;
    this.surface.hidden = range === null;
    this.reset.hidden = this.view === null;
    this.drawLegend();
    this.picture.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.picture.setAttribute("height", range === null ? 96 : this.height);
    const name = svg("title", {text: this.title});
    const words = svg("desc", {text: this.words()});
    if (range === null) {
      this.scale = null;
      this.hideCursor();
      this.picture.replaceChildren(name, words);
      return;
    }
    const [y0, y1] = range;
    const place = {left: 62, right: width - 12, top: this.data.bands.length ? 26 : 16, bottom: this.height - 36};
    const ySize = (y) => (this.isLog ? Math.log(Math.max(y, 1e-300)) : y);
    const x = (value) => place.left + ((value - x0) / (x1 - x0)) * (place.right - place.left);
    const y = (value) => place.bottom - ((ySize(value) - ySize(y0)) / (ySize(y1) - ySize(y0))) * (place.bottom - place.top);
    this.scale = {x, y, x0, x1, place, inverse: (at) => x0 + ((at - place.left) / (place.right - place.left)) * (x1 - x0)};
    const clip = newId("clip");
    const axes = svg("g", {class: "axes"});
    for (const tick of this.yTicks(y0, y1)) {
      axes.append(svg("line", {x1: place.left, x2: place.right, y1: y(tick), y2: y(tick)}),
        svg("text", {x: place.left - 7, y: y(tick) + 4, "text-anchor": "end", text: this.tickText(tick)}));
    }
    for (const tick of ticks(x0, x1, Math.max(2, width / 110)).filter((t) => Number.isInteger(t) || x1 - x0 < 2)) {
      if (this.data.bands.length) break;
      axes.append(svg("line", {class: "tick", x1: x(tick), x2: x(tick), y1: place.bottom, y2: place.bottom + 4}),
        svg("text", {x: x(tick), y: place.bottom + 17, "text-anchor": "middle", text: this.xFormat(tick)}));
    }
    axes.append(svg("line", {class: "base", x1: place.left, x2: place.right, y1: place.bottom, y2: place.bottom}),
      svg("text", {x: place.right, y: this.height - 4, "text-anchor": "end", text: this.xName}));
    const curves = svg("g", {"clip-path": `url(#${clip})`});
    this.drawBands(axes, curves);
    for (const series of this.shown()) curves.append(this.curve(series));
    const levels = svg("g", {class: "axes"});
    for (const {y: at, name: level} of this.data.levels) {
      if (at < y0 || at > y1) continue;
      levels.append(svg("line", {class: "level", x1: place.left, x2: place.right, y1: y(at), y2: y(at)}),
        svg("text", {class: "level-name", x: place.right - 4, y: y(at) + (y(at) < place.top + 16 ? 14 : -5),
          "text-anchor": "end", text: level}));
    }
    this.rule = svg("line", {class: "rule", y1: place.top, y2: place.bottom, visibility: "hidden"});
    this.picture.replaceChildren(name, words,
      svg("clipPath", {id: clip}, svg("rect", {x: place.left - 4, y: place.top - 2,
        width: place.right - place.left + 8, height: place.bottom - place.top + 4})),
      axes, curves, levels, this.markers(), this.rule);
    if (this.cursor !== null) this.showCursor(this.cursor, false);
  }

  tickText(tick) {
    if (this.format === Format.bytes) return this.format(tick);
    const size = Math.abs(tick);
    if (size !== 0 && (size < 0.001 || size >= 1e6)) return tick.toExponential(0);
    return String(Number(tick.toPrecision(4)));
  }

  drawBands(axes, curves) {
    const {x, x0, x1, place} = this.scale;
    this.data.bands.forEach(({from, to, name}, index) => {
      const [left, right] = [Math.max(from, x0), Math.min(to, x1)];
      if (left >= right) return;
      const width = x(right) - x(left);
      if (index % 2) curves.append(svg("rect", {class: "band", x: x(left), y: place.top, width, height: place.bottom - place.top}));
      axes.append(svg("line", {class: "tick", x1: x(left), x2: x(left), y1: place.top - 12, y2: place.bottom}));
      if (width > name.length * 6.5) axes.append(svg("text", {x: x(left) + 4, y: place.top - 6, text: name}));
    });
  }

  curve({xs, ys, base, colour, dash, soft, bridges}) {
    const {x, y} = this.scale;
    const point = (i, value) => `${x(xs[i]).toFixed(1)},${y(value).toFixed(1)}`;
    if (base) {
      // Each value is drawn one unit of x wide.
      const right = (i, value) => `${x(xs[i] + 1).toFixed(1)},${y(value).toFixed(1)}`;
      const upper = xs.map((_, i) => `${point(i, ys[i])} ${right(i, ys[i])}`);
      const lower = xs.map((_, i) => `${right(i, base[i])} ${point(i, base[i])}`).reverse();
      return svg("polygon", {class: `area c${colour}`, points: [...upper, ...lower].join(" ")});
    }
    let path = "";
    let pen = "M";
    let drawn = 0;
    for (let i = 0; i < xs.length; ++i) {
      if (!isNumber(ys[i]) || (this.isLog && ys[i] <= 0)) {
        if (!bridges) pen = "M";
        continue;
      }
      path += pen + point(i, ys[i]);
      pen = "L";
      ++drawn;
    }
    const line = svg("path", {class: `curve c${colour}${soft ? " faint" : ""}`, d: path, "stroke-dasharray": dash});
    if (drawn > 24 || soft) return line;
    const dots = xs.map((at, i) => (isNumber(ys[i]) && !(this.isLog && ys[i] <= 0)
      ? svg("circle", {class: `dot c${colour}`, cx: x(at), cy: y(ys[i]), r: 2.5}) : null));
    return svg("g", null, line, ...dots);
  }

  markers() {
    const {x, x0, x1, place} = this.scale;
    const group = svg("g");
    const last = {};
    for (const {x: at, kind} of [...this.data.markers].sort((a, b) => a.x - b.x)) {
      if (at < x0 || at > x1 || x(at) - (last[kind] ?? -99) < 5) continue;
      last[kind] = x(at);
      if (kind === "fault") {
        const [left, top] = [x(at), place.top - 5];
        group.append(svg("line", {class: "fault-line", x1: left, x2: left, y1: place.top, y2: place.bottom}),
          svg("path", {class: "fault-mark", d: `M${left - 4},${top - 4}l8,8m0,-8l-8,8`}));
      } else {
        group.append(svg("path", {class: "checkpoint-mark", d: `M${x(at)},${place.bottom - 5}l4,5l-4,5l-4,-5z`}));
      }
    }
    return group;
  }

  drawLegend() {
    const groups = new Map();
    for (const series of this.data.series) if (!series.soft) groups.set(series.group || series.name, series);
    const kinds = new Set(this.data.markers.map((marker) => marker.kind));
    const entries = [...groups].map(([name, {colour, dash, base}]) => ({name, colour, dash, isArea: Boolean(base)}));
    for (const kind of kinds) entries.push({name: kind === "fault" ? "fault" : "checkpoint", mark: kind});
    reconcile(this.legend, entries, (entry) => `${entry.name}|${entry.colour}|${entry.dash}`, (entry) => {
      const sample = svg("svg", {width: 24, height: 12, "aria-hidden": "true"});
      if (entry.mark === "fault") sample.append(svg("path", {class: "fault-mark", d: "M8,2l8,8m0,-8l-8,8"}));
      else if (entry.mark) sample.append(svg("path", {class: "checkpoint-mark", d: "M12,1l4,5l-4,5l-4,-5z"}));
      else if (entry.isArea) sample.append(svg("rect", {class: `area c${entry.colour}`, x: 4, y: 1, width: 16, height: 10}));
      else sample.append(svg("path", {class: `curve c${entry.colour}`, d: "M1,6L23,6", "stroke-dasharray": entry.dash}));
      if (entry.mark || entry.isArea) return el("span", {class: "key"}, sample, el("span", {text: entry.name}));
      return el("button", {type: "button", class: "key", on: {click: () => this.toggle(entry.name)}},
        sample, el("span", {text: entry.name}));
    }, (node, entry) => {
      if (!entry.mark && !entry.isArea) node.setAttribute("aria-pressed", String(!this.hiddenNames.has(entry.name)));
    });
  }

  toggle(name) {
    if (!this.hiddenNames.delete(name)) this.hiddenNames.add(name);
    this.draw();
  }

  // The chart as one paragraph, for screen readers.
  words() {
    const parts = this.data.series.filter((series) => !series.soft && series.xs.length).map((series) => {
      const known = series.ys.filter(isNumber);
      if (!known.length) return `${series.name}: ${UNKNOWN}`;
      const least = known.reduce((a, b) => Math.min(a, b));
      const most = known.reduce((a, b) => Math.max(a, b));
      return `${series.name}: from ${this.format(known[0])} to ${this.format(known[known.length - 1])}, ` +
        `least ${this.format(least)}, greatest ${this.format(most)}`;
    });
    const faults = this.data.markers.filter((marker) => marker.kind === "fault").length;
    return [this.describe, ...parts, faults ? Format.count(faults, "fault") : ""].filter(Boolean).join(". ");
  }

  drawTable() {
    if (!this.details.open) return this.tablePlace.replaceChildren();
    const series = this.data.series.filter((one) => !one.soft);
    const all = [...new Set(series.flatMap((one) => one.xs))].sort((a, b) => a - b);
    const at = series.map((one) => new Map(one.xs.map((x, i) => [x, i])));
    const columns = [{name: this.xName, value: (x) => x, show: (x) => (this.data.label ? this.data.label(x) : this.xFormat(x)),
      head: true, left: true}];
    series.forEach((one, n) => columns.push({name: one.name, value: (x) => one.ys[at[n].get(x)] ?? null,
      show: (x) => (one.show ? one.show(at[n].get(x)) : this.format(one.ys[at[n].get(x)]))}));
    const scrolled = this.tablePlace.firstChild ? this.tablePlace.firstChild.scrollTop : 0;
    this.tablePlace.replaceChildren();
    new DataTable(this.tablePlace, {caption: this.title, columns, most: 200}).update(all);
    this.tablePlace.firstChild.scrollTop = scrolled;
  }

  listen() {
    const surface = this.surface;
    const at = (event) => event.clientX - this.box.getBoundingClientRect().left;
    let from = null;
    surface.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.scale) return;
      from = at(event);
      surface.setPointerCapture(event.pointerId);
    });
    surface.addEventListener("pointermove", (event) => {
      if (!this.scale) return;
      this.showCursor(this.scale.inverse(at(event)), false);
      if (from === null) return;
      this.selection.hidden = Math.abs(at(event) - from) < 6;
      this.selection.style.left = `${Math.min(from, at(event))}px`;
      this.selection.style.width = `${Math.abs(at(event) - from)}px`;
    });
    surface.addEventListener("pointerup", (event) => {
      if (from !== null && this.scale && Math.abs(at(event) - from) >= 6) {
        const ends = [this.scale.inverse(from), this.scale.inverse(at(event))].sort((a, b) => a - b);
        this.choose(ends);
      }
      from = null;
      this.selection.hidden = true;
    });
    surface.addEventListener("pointercancel", () => { from = null; this.selection.hidden = true; });
    surface.addEventListener("pointerleave", () => { if (document.activeElement !== surface) this.hideCursor(); });
    surface.addEventListener("blur", () => this.hideCursor());
    surface.addEventListener("dblclick", () => this.choose(null));
    surface.addEventListener("keydown", (event) => {
      if (this.scale && !event.ctrlKey && !event.metaKey && !event.altKey && this.key(event.key, event.shiftKey)) event.preventDefault();
    });
  }

  key(key, isFast) {
    const longest = this.shown().reduce((best, one) => (one.xs.length > best.length ? one.xs : best), []);
    if (!longest.length) return false;
    const {x0, x1} = this.scale;
    const now = this.cursor === null ? longest.length - 1 : nearest(longest, this.cursor);
    const step = isFast ? 10 : 1;
    const centre = this.cursor ?? (x0 + x1) / 2;
    const moves = {ArrowLeft: () => now - (this.cursor === null ? 0 : step), ArrowRight: () => now + (this.cursor === null ? 0 : step),
      Home: () => 0, End: () => longest.length - 1};
    if (moves[key]) {
      const to = longest[Math.max(0, Math.min(longest.length - 1, moves[key]()))];
      if (this.view && (to < x0 || to > x1)) this.choose([to - (x1 - x0) / 2, to + (x1 - x0) / 2]);
      this.showCursor(to, true);
    } else if (key === "+" || key === "=") this.choose([centre - (x1 - x0) / 4, centre + (x1 - x0) / 4]);
    else if (key === "-") this.choose([centre - (x1 - x0), centre + (x1 - x0)]);
    else if (key === "0" || key === "Escape") this.choose(null);
    else return false;
    return true;
  }

  showCursor(at, speaks) {
    const shown = this.shown().filter((series) => !series.soft && series.xs.length);
    if (!shown.length || !this.scale) return this.hideCursor();
    const {x, x0, x1, place} = this.scale;
    // An area's value covers x up to the next x.
    const seek = this.unitStep ? at - 0.5 : at;
    const longest = shown.reduce((best, one) => (one.xs.length > best.length ? one.xs : best), shown[0].xs);
    const found = longest[nearest(longest, seek)];
    if (found < x0 || found > x1) return this.hideCursor();
    this.cursor = at;
    const left = x(found + this.unitStep / 2);
    this.rule.setAttribute("x1", left);
    this.rule.setAttribute("x2", left);
    this.rule.setAttribute("visibility", "visible");
    const head = this.data.label ? this.data.label(found) : `${this.xName} ${this.xFormat(found)}`;
    const lines = shown.map((series) => {
      const index = nearest(series.xs, found);
      if (Math.abs(series.xs[index] - found) > Math.max(1, (x1 - x0) / 50)) return null;
      return {name: series.name, colour: series.colour, text: series.show ? series.show(index) : this.format(series.ys[index])};
    }).filter(Boolean);
    const notes = this.data.markers.filter((marker) => Math.abs(x(marker.x) - left) < 6).slice(0, 3).map((marker) => marker.text);
    this.tip.replaceChildren(el("strong", {text: head}),
      ...lines.map(({name, colour, text}) => el("div", {class: "tip-line"}, el("span", {class: `swatch c${colour}`}),
        el("span", {text: name}), el("b", {text}))),
      ...notes.map((text) => el("div", {class: "tip-note", text})));
    this.tip.hidden = false;
    const room = this.tip.offsetWidth;
    const beside = left + 14 + room > place.right ? left - room - 14 : left + 14;
    this.tip.style.left = `${Math.max(0, Math.min(beside, this.box.clientWidth - room))}px`;
    if (speaks) this.spoken.textContent = clean([head, ...lines.map(({name, text}) => `${name} ${text}`), ...notes].join(", "));
  }

  hideCursor() {
    this.cursor = null;
    this.tip.hidden = true;
    if (this.rule) this.rule.setAttribute("visibility", "hidden");
  }
}
