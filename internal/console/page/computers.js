// The page of computers: which stand on this machine, the screen of one as it changes, and, where the console allows it, mouse and keyboard for it.
import { Failed, byID, call, el, fill, keepToken, text, token } from "/api.js";

function complain(e) {
  if (e.name === "AbortError") return;
  if (e instanceof Failed && e.status === 401) {
    byID("console").hidden = byID("view").hidden = true;
    byID("token-form").hidden = false;
    byID("token").focus();
    return;
  }
  const box = byID("error");
  box.hidden = false;
  fill(box, text(e.message));
}

const calm = () => (byID("error").hidden = true);

// The list.

const POLL = 5000;
let takeOver = false;
let listing = null;

async function list() {
  clearTimeout(listing);
  try {
    const got = await call("GET", "computers");
    takeOver = got.take_over;
    byID("token-form").hidden = true;
    byID("console").hidden = false;
    fill(byID("warnings"), got.warnings.map((w) => el("p", { class: "bad" }, w)));
    const before = document.activeElement && document.activeElement.dataset.watch;
    fill(byID("computers"), got.computers.length ? got.computers.map(card) : el("li", { class: "soft" }, "No computer stands on this machine."));
    const same = before && [...document.querySelectorAll("[data-watch]")].find((b) => b.dataset.watch === before);
    if (same) same.focus();
    if (!watching) calm();
    listing = setTimeout(list, POLL);
  } catch (e) {
    complain(e);
    if (!(e instanceof Failed && e.status === 401)) listing = setTimeout(list, POLL);
  }
}

const pair = (name, value) => (value ? [el("dt", {}, name), el("dd", {}, value)] : []);

function card(c) {
  return el("li", { "data-computer": c.id },
    el("div", { class: "row" }, el("h3", {}, c.name), el("button", { type: "button", "data-watch": c.id, onclick: () => watch(c) }, "Watch")),
    el("dl", {},
      pair("environment", c.env_id), c.by_hand ? pair("deployed", "by hand") : pair("run", c.run_id + (c.step_id ? ", step " + c.step_id : "")),
      pair("sandbox", c.id), pair("since", new Date(c.created).toLocaleString()), pair("until", new Date(c.expires).toLocaleString())));
}

// The stream: lines of JSON, each a picture's followed by its bytes.

class Reader {
  constructor(body) {
    this.source = body.getReader();
    this.held = [];
    this.size = 0;
  }
  async more() {
    const { done, value } = await this.source.read();
    if (done) return false;
    this.held.push(value);
    this.size += value.length;
    return true;
  }
  take(n) {
    const all = new Uint8Array(this.size);
    let at = 0;
    for (const part of this.held) {
      all.set(part, at);
      at += part.length;
    }
    this.held = n < all.length ? [all.subarray(n)] : [];
    this.size = all.length - n;
    return all.subarray(0, n);
  }
  async bytes(n) {
    while (this.size < n) if (!(await this.more())) return null;
    return this.take(n);
  }
  // line is the next one, as an object; null at the end.
  async line() {
    for (;;) {
      let before = 0;
      for (const part of this.held) {
        const at = part.indexOf(10);
        if (at >= 0) return JSON.parse(new TextDecoder().decode(this.take(before + at + 1)));
        before += part.length;
      }
      if (!(await this.more())) return null;
    }
  }
}

let watching = null; // { computer, abort, watch }

const state = (value) => fill(byID("view-state"), text(value));

async function watch(c) {
  leave();
  calm();
  const mine = (watching = { computer: c, abort: new AbortController(), watch: "", pictures: 0 });
  const canvas = byID("screen");
  fill(byID("view-name"), text(c.name));
  state("Connecting…");
  byID("view").hidden = false;
  byID("view").dataset.pictures = "0";
  byID("hands").hidden = byID("only-watch").hidden = true;
  byID("view").scrollIntoView({ block: "nearest" });
  try {
    await stream(mine, canvas);
  } catch (e) {
    if (watching === mine) {
      complain(e);
      if (e.name !== "AbortError") state("The picture stands still: " + e.message);
    }
  } finally {
    if (watching === mine) over();
  }
}

async function stream(mine, canvas) {
  const answer = await fetch("/api/computers/" + encodeURIComponent(mine.computer.id) + "/screen", {
    headers: { Authorization: "Bearer " + token() }, cache: "no-store", credentials: "omit", signal: mine.abort.signal,
  });
  if (!answer.ok) throw new Failed(answer.status, await answer.json().catch(() => null));
  const pen = canvas.getContext("2d");
  const from = new Reader(answer.body);
  for (let line; (line = await from.line()); ) {
    if (line.watch) {
      mine.watch = line.watch;
      state("Live.");
      byID("hands").hidden = !line.take_over;
      byID("only-watch").hidden = line.take_over;
    } else if (line.end) {
      state(line.detail);
      list();
      return;
    } else {
      const png = await from.bytes(line.bytes);
      if (!png) break;
      const picture = await createImageBitmap(new Blob([png], { type: "image/png" }));
      if (watching !== mine) return;
      if (canvas.width !== line.width || canvas.height !== line.height) {
        canvas.width = line.width;
        canvas.height = line.height;
      }
      pen.drawImage(picture, line.x, line.y);
      picture.close();
      byID("view").dataset.pictures = String(++mine.pictures);
    }
  }
  state("The console ended the stream. Is agent-env up still running?");
}

// over ends what goes with a live picture, which stays to be looked at.
function over() {
  watching = null;
  take(false);
  byID("hands").hidden = byID("only-watch").hidden = true;
}

function leave() {
  if (!watching) return;
  watching.abort.abort();
  over();
}

// Mouse and keyboard: inputs go one after another.

let taken = false;
let turn = Promise.resolve();

function take(on) {
  taken = on;
  byID("take").checked = on;
  byID("type-form").hidden = !on;
  const canvas = byID("screen");
  canvas.classList.toggle("taken", on);
  if (on) canvas.tabIndex = 0;
  else canvas.removeAttribute("tabindex");
}

function send(input) {
  const mine = watching;
  if (!mine || !taken) return;
  turn = turn.then(async () => {
    if (watching !== mine) return;
    try {
      await call("POST", "computers/" + encodeURIComponent(mine.computer.id) + "/input", { watch: mine.watch, ...input }, mine.abort.signal);
      calm();
    } catch (e) {
      complain(e);
    }
  });
}

const BUTTONS = ["left", "middle", "right"];

function point(event) {
  const box = byID("screen").getBoundingClientRect();
  const part = (value, size) => Math.min(1, Math.max(0, value / size));
  return [part(event.clientX - box.left, box.width), part(event.clientY - box.top, box.height)];
}

const held = (event) => [["ctrlKey", "Control"], ["altKey", "Alt"], ["shiftKey", "Shift"], ["metaKey", "Meta"]].filter(([flag]) => event[flag]).map(([, key]) => key);

let path = null; // of a button that is down

function wire(canvas) {
  canvas.onpointerdown = (event) => {
    if (!taken || !BUTTONS[event.button]) return;
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    path = { button: BUTTONS[event.button], points: [point(event)], x: event.clientX, y: event.clientY, moved: false };
  };
  canvas.onpointermove = (event) => {
    if (!path) return;
    path.moved = path.moved || Math.hypot(event.clientX - path.x, event.clientY - path.y) > 4;
    if (path.points.length < 40) path.points.push(point(event));
  };
  canvas.onpointerup = (event) => {
    if (!path) return;
    const { button, points, moved } = path;
    path = null;
    if (moved) send({ action: "drag", path: [...points.slice(0, 40), point(event)], button, modifiers: held(event) });
    else send({ action: "click", at: points[0], button, modifiers: held(event) });
  };
  canvas.onpointercancel = () => (path = null);
  canvas.oncontextmenu = (event) => taken && event.preventDefault();
  let wheel = null;
  canvas.addEventListener("wheel", (event) => {
    if (!taken) return;
    event.preventDefault();
    const down = Math.abs(event.deltaY) >= Math.abs(event.deltaX);
    const direction = down ? (event.deltaY > 0 ? "down" : "up") : event.deltaX > 0 ? "right" : "left";
    if (wheel && wheel.direction === direction) {
      wheel.amount = Math.min(10, wheel.amount + 1);
      return;
    }
    const mine = (wheel = { direction, amount: 1, at: point(event), modifiers: held(event) });
    setTimeout(() => {
      send({ action: "scroll", ...mine });
      if (wheel === mine) wheel = null;
    }, 120);
  }, { passive: false });
  canvas.onkeydown = (event) => {
    if (!taken || event.isComposing) return;
    if (event.key === "Escape" && event.shiftKey) {
      canvas.blur();
      return;
    }
    event.preventDefault();
    const keys = held(event);
    if (["Control", "Alt", "Shift", "Meta", "AltGraph", "CapsLock", "Dead", "Unidentified", "Process"].includes(event.key)) return;
    const chord = keys.some((k) => k !== "Shift");
    if ([...event.key].length === 1 && !chord) send({ action: "type", text: event.key });
    else send({ action: "key", keys: [...keys, event.key] });
  };
}

// Wiring.

wire(byID("screen"));
byID("token-form").onsubmit = (event) => {
  event.preventDefault();
  keepToken(byID("token").value.trim());
  byID("token").value = "";
  list();
};
byID("again").onclick = list;
byID("leave").onclick = () => {
  leave();
  byID("view").hidden = true;
};
byID("take").onchange = (event) => take(event.target.checked && takeOver);
byID("type-form").onsubmit = (event) => {
  event.preventDefault();
  if (byID("typed").value) send({ action: "type", text: byID("typed").value });
  byID("typed").value = "";
};
for (const b of document.querySelectorAll("[data-key]")) b.onclick = () => send({ action: "key", keys: [b.dataset.key] });

if (token()) list();
else complain(new Failed(401, null));
