// The page of git plugins: what is installed, installing by address with the plan shown before consent, updating, removing; and of workspaces made from bundles of them, with their agents.
import { Failed, byID, call, el, fill, keepToken, link, plain, text, token } from "/api.js";

const short = (commit) => (commit || "").slice(0, 10);
let newer = {}; // what sources have now, by kind and id
let fetchOnly = false;

// Work: one thing at a time, with its seconds and a way to end it.
let working = null;
let failed = null; // why the last one failed

function show(id, value) {
  const box = byID(id);
  box.hidden = !value;
  fill(box, value ? text(value) : null);
}

const say = (value) => show("done", value);

function complain(e) {
  if (e.name === "AbortError") {
    show("error", "Cancelled: nothing was changed.");
    return;
  }
  if (e instanceof Failed && e.status === 401) {
    askToken();
    return;
  }
  // Every line of what is wrong is a line.
  const box = byID("error");
  box.hidden = false;
  fill(box, e.message.split("\n").map((line) => el("div", {}, line)));
  box.scrollIntoView({ block: "nearest" });
}

async function work(what, task) {
  if (working) return undefined;
  working = new AbortController();
  const began = Date.now();
  const tick = () => (byID("status-time").textContent = Math.round((Date.now() - began) / 1000) + " s");
  show("error", "");
  say("");
  failed = null;
  fill(byID("status-text"), text(what + "…"));
  tick();
  byID("status").hidden = false;
  const timer = setInterval(tick, 1000);
  lock(true);
  try {
    return await task(working.signal);
  } catch (e) {
    failed = e;
    complain(e);
    return undefined;
  } finally {
    clearInterval(timer);
    byID("status").hidden = true;
    working = null;
    lock(false);
  }
}

function lock(on) {
  for (const b of document.querySelectorAll("#console button, #console input, #console select")) b.disabled = on;
  byID("cancel").disabled = !on;
}

function askToken() {
  byID("console").hidden = true;
  byID("token-form").hidden = false;
  byID("token").focus();
}

// Lists.

const pair = (name, ...values) => {
  const shown = values.flat().filter((v) => v !== "" && v !== null && v !== undefined);
  return shown.length ? [el("dt", {}, name), el("dd", {}, shown.map((v, i) => [i ? ", " : null, v]))] : [];
};

async function load(signal) {
  const got = await call("GET", "plugins/installed", undefined, signal);
  fetchOnly = got.fetch_only;
  fill(byID("workspace"), text(got.workspace));
  byID("token-form").hidden = true;
  byID("console").hidden = false;
  fill(byID("warnings"), got.warnings.map((w) => el("p", { class: "bad" }, w)));
  fill(byID("bundles"), got.bundles.map(bundleCard));
  const fleet = await call("GET", "fleet", undefined, signal);
  fill(byID("folder"), text(fleet.folder));
  fill(byID("workspaces"), fleet.agents.length ? fleet.agents.map(workspaceCard) : el("li", { class: "soft" }, "No workspace was created yet."));
  if (!got.plugins.some((p) => p.views.some((v) => v.url && v.url === shownView))) closeView();
  fill(byID("plugins"), got.plugins.length ? got.plugins.map(pluginCard) : el("li", { class: "soft" }, "No plugin is installed."));
}

function updateLine(kind, id) {
  const u = newer[kind + " " + id];
  if (!u) return null;
  if (u.error) return el("p", { class: "bad" }, "Looking for updates failed: ", u.error);
  if (u.pinned) return el("p", { class: "soft" }, "Pinned to its commit.");
  if (!u.behind) return el("p", { class: "good" }, "Up to date.");
  return el("p", { class: "good" }, "There is something newer: ", u.latest_ref, " ", short(u.latest_sha));
}

function pluginCard(p) {
  const m = p.manifest;
  const c = m ? m.contributes : null;
  const at = "plugins/" + encodeURIComponent(p.id);
  return el(
    "li", { "data-plugin": p.id },
    el("div", { class: "row" },
      el("h3", {}, m ? m.name : p.id),
      el("span", { class: p.enabled ? "good" : "soft" }, p.enabled ? "on" : "off")),
    m && m.description ? el("p", {}, m.description) : null,
    p.error ? el("p", { class: "bad" }, p.error) : null,
    p.incomplete ? el("p", { class: "bad" }, "It needs settings: ", p.needs_config.join(", ")) : null,
    p.deps_missing ? el("p", { class: "soft" }, "The packages that it declares are not installed.") : null,
    updateLine("plugin", p.id),
    el("dl", {},
      pair("id", p.id), pair("version", m ? m.version : ""), pair("source", link(p.source_url)), pair("ref", p.requested_ref), pair("commit", short(p.resolved_sha)),
      p.bundle ? pair("bundle", p.bundle.name || p.bundle.id) : [], c ? pair("program", c.command.join(" ")) : [], c ? pair("skills", c.skills) : [],
      c && c.mcp_servers ? pair("MCP servers", String(c.mcp_servers)) : [], c ? pair("not loaded here", c.python_not_loaded) : [],
      m && m.homepage ? pair("homepage", link(m.homepage)) : []),
    viewList(p),
    el("div", { class: "buttons" },
      el("button", { type: "button", "data-act": "switch", onclick: () => turn(p, at) }, p.enabled ? "Turn off" : "Turn on"),
      el("button", { type: "button", "data-act": "update", onclick: () => update(p.id, at + "/update", p.id + " is updated.") }, "Update"),
      p.deps_missing ? el("button", { type: "button", "data-act": "deps", onclick: () => packages(p.id) }, "Install its packages") : null,
      removing(at, p.id)));
}

// Views: pages that plugins bring. They are shown in a frame that shares nothing with this page, and nothing here listens to what they say.

let shownView = null; // the address of the one that is shown

function viewList(p) {
  if (!p.views.length) return null;
  return el("div", { class: "views" },
    el("h4", {}, "Views"),
    el("ul", {}, p.views.map((v) => el("li", { "data-view": v.id },
      v.url ? el("button", { type: "button", "data-act": "view", onclick: () => openView(p, v) }, v.title) : v.title,
      v.error ? el("span", { class: "soft" }, " ", v.error) : null))));
}

function openView(p, v) {
  if (!/^\/views\/[a-z0-9]+\//.test(v.url)) return;
  const frame = el("iframe", { id: "view-frame", title: plain(v.title) + ", a page of the plugin " + plain(p.id), referrerPolicy: "no-referrer" });
  frame.setAttribute("sandbox", "allow-scripts"); // before the address
  frame.src = v.url;
  shownView = v.url;
  const box = byID("view");
  fill(box,
    el("div", { class: "row" },
      el("h2", {}, v.title),
      el("span", { class: "buttons" }, el("button", { type: "button", id: "view-close", onclick: closeView }, "Close"))),
    el("p", { class: "hint" }, "The plugin ", p.id, " made this page. It can't reach the console: don't type the console's token or any other secret into it."),
    frame);
  box.hidden = false;
  box.scrollIntoView({ block: "start" });
}

function closeView() {
  shownView = null;
  byID("view").hidden = true;
  fill(byID("view"));
}

function bundleCard(b) {
  const at = "plugins/bundles/" + encodeURIComponent(b.id);
  return el(
    "li", { "data-bundle": b.id },
    el("div", { class: "row" }, el("h3", {}, b.name || b.id), el("span", { class: "soft" }, "bundle")),
    updateLine("bundle", b.id),
    el("dl", {}, pair("id", b.id), pair("plugins", b.plugins), pair("source", link(b.source_url)), pair("ref", b.requested_ref), pair("commit", short(b.resolved_sha))),
    el("div", { class: "buttons" },
      el("button", { type: "button", "data-act": "update", onclick: () => update(b.id, at + "/update", "The bundle " + b.id + " is updated.") }, "Update"),
      removing(at, b.id)));
}

function workspaceCard(w) {
  const at = "fleet/" + encodeURIComponent(w.name);
  return el(
    "li", { "data-workspace": w.name },
    el("div", { class: "row" },
      el("h3", {}, w.name),
      el("span", { class: w.running ? "good" : "soft" }, w.running ? "running" : "stopped")),
    w.error ? el("p", { class: "bad" }, w.error) : null,
    w.start_error ? el("p", { class: "bad" }, w.start_error) : null,
    w.agent_warnings.map((text) => el("p", { class: "bad" }, text)),
    el("dl", {},
      pair("folder", w.root), pair("bundle", w.bundle), pair("wants tools", w.requires_tools),
      w.running ? [pair("A2A address", el("code", {}, w.a2a_url)), pair("model", w.model), pair("tools", w.tools), pair("skills", w.skills)] : [],
      pair("serve its agent elsewhere", el("code", {}, "agent-env workspace run " + w.name))),
    w.running ? el("p", { class: "hint" }, "Whoever knows the address may ask the agent.") : null,
    el("div", { class: "buttons" },
      w.running
        ? el("button", { type: "button", "data-act": "stop", onclick: () => serve(w.name, at + "/stop", "Stopping ", " is stopped.") }, "Stop")
        : el("button", { type: "button", "data-act": "start", onclick: () => serve(w.name, at + "/start", "Starting ", " runs.") }, "Start"),
      removing(at, w.name, "its whole folder too, with all files in it")));
}

// Changes.

// replacing offers to force what failed because something else has the id.
function replacing(retry) {
  if (!(failed instanceof Failed) || failed.body.code !== "conflict") return;
  byID("error").append(el("button", { type: "button", id: "replace", onclick: retry }, "Replace what is installed"));
}

// agreed does something that may need consent: it shows the plan, and does it again when somebody has consented.
async function agreed(what, retry, act, answers) {
  const out = await act(answers);
  if (out === undefined || !out.needs_ack) return out;
  if (out.plan) {
    showPlan({ plan: out.plan, digest: out.plan_digest, source: out.source, needs: true, what, questions: [], title: what, go: (said) => retry(said) });
    return undefined;
  }
  // Nobody has looked yet.
  const seen = await work("Looking at " + out.source, (signal) => call("POST", "plugins/peek", { url: out.source, again: true }, signal));
  if (!seen) return undefined;
  if (!seen.plan) {
    complain(new Failed(0, { detail: seen.members.filter((m) => m.error).map((m) => m.id + ": " + m.error).concat(seen.problems).join("\n") || "it can't be looked at" }));
    return undefined;
  }
  showPlan({ plan: seen.plan, digest: seen.plan_digest, source: seen.source_url, needs: true, what, questions: seen.questions, title: what, seen, go: (said) => retry(said) });
  return undefined;
}

async function turn(p, at) {
  const run = async () => {
    const out = await agreed(p.id + " is to be turned on", run, () =>
      work((p.enabled ? "Turning off " : "Turning on ") + p.id, (signal) => call("POST", at + "/enabled", { enabled: !p.enabled }, signal)));
    if (out) await after(p.id + (out.enabled ? " is on." : " is off."), out);
  };
  await run();
}

async function update(id, path, text) {
  let force = {};
  const run = async (answers) => {
    const out = await agreed(id + " is to be updated", run, (a) => work("Updating " + id, (signal) => call("POST", path, { ...(a || {}), ...force }, signal)), answers);
    if (!out) {
      replacing(() => {
        force = { force: true };
        run(answers);
      });
      return;
    }
    newer = {};
    await after(out.outcome === "up_to_date" ? id + " is up to date." : text, out);
  };
  await run();
}

// packages shows what an installer would install for a plugin, and then has it done.
async function packages(id) {
  const ask = (dry) => work(dry ? "Asking what " + id + " needs" : "Installing packages for " + id, (signal) => call("POST", "plugins/install-deps", { id, dry_run: dry }, signal));
  const run = async () => {
    const out = await agreed("Packages are to be installed for " + id, run, () => ask(true));
    if (out) showPackages(id, out, async () => {
      const done = await agreed("Packages are to be installed for " + id, run, () => ask(false));
      if (!done) return;
      closePlan();
      await after("The packages of " + id + " are installed.", { restart_recommended: done.changed });
    });
  };
  await run();
}

function showPackages(id, out, install) {
  const box = byID("plan");
  const go = el("form", { id: "packages-form" },
    el("div", { class: "buttons" }, el("button", { type: "submit", id: "go" }, "Install them"), el("button", { type: "button", id: "leave", onclick: closePlan }, "Leave it")));
  go.onsubmit = (event) => {
    event.preventDefault();
    install();
  };
  fill(box,
    el("h2", {}, "Packages for " + id),
    el("p", { class: "hint" }, "They go into an environment of this plugin alone, and its programs find them first."),
    el("dl", {}, pair("it declares", out.requires_pip), pair("left out", out.not_installed), pair("the installer would", el("pre", {}, out.plan.join("\n") || "change nothing"))),
    go);
  box.hidden = false;
  box.scrollIntoView({ block: "start" });
}

// serve starts or stops a workspace's agent.
async function serve(name, path, doing, done) {
  const out = await work(doing + name, (signal) => call("POST", path, {}, signal));
  if (out) await after("The agent of " + name + done, out);
  else await partly();
}

// partly shows the lists after something of a workspace failed: its agent may say why there, and what is cancelled may have been done in part.
async function partly() {
  const why = failed;
  if (!why) return;
  await work("Reading", load);
  if (why.name === "AbortError") show("error", "Cancelled. The list of workspaces shows what was done until then.");
  else complain(why);
}

function removing(at, id, more = "its settings and secrets too") {
  const purge = el("input", { type: "checkbox" });
  const box = el("span", { class: "buttons" });
  const ask = el("button", { type: "button", "data-act": "remove" }, "Remove");
  const calm = () => fill(box, ask);
  ask.onclick = () => {
    const yes = el("button", { type: "button", "data-act": "remove-really" }, "Remove " + id);
    yes.onclick = async () => {
      const out = await work("Removing " + id, (signal) => call("DELETE", at + (purge.checked ? "?purge=true" : ""), undefined, signal));
      if (out) await after(id + " is removed.", out);
      else if (at.startsWith("fleet/")) await partly();
    };
    fill(box, el("label", { class: "check" }, purge, el("span", {}, more)), yes, el("button", { type: "button", onclick: calm }, "Keep it"));
    yes.focus();
  };
  calm();
  return box;
}

// after shows what came of a change, and the lists as they are now.
async function after(what, out) {
  const lines = [what];
  if (out.enable_error) lines.push("It was not turned on: " + out.enable_error);
  for (const [id, why] of Object.entries(out.load_errors || {})) lines.push(id + " can't be used: " + why);
  if (out.enabled && out.enabled.length) lines.push("Turned on: " + out.enabled.join(", "));
  if (out.config_written && out.config_written.length) lines.push("Settings written: " + out.config_written.join(", "));
  if (out.mcp_seeded && out.mcp_seeded.length) lines.push("MCP servers: " + out.mcp_seeded.join(", "));
  if (out.mcp_off && out.mcp_off.length) lines.push("Off until what they require is set: " + out.mcp_off.join(", "));
  if (out.removed_members && out.removed_members.length) lines.push("Removed with it: " + out.removed_members.join(", "));
  if (out.kept && out.kept.length) lines.push("They stay: " + out.kept.join(", "));
  for (const w of out.warnings || []) lines.push("Warning: " + w);
  if (out.restart_recommended) lines.push("An agent of this workspace that runs takes notice when it starts again.");
  await work("Reading", load);
  const box = byID("done");
  box.hidden = false;
  fill(box, lines.map((line) => el("div", {}, line)));
}

// The plan.

function disclosed(d) {
  return el("div", { class: "member" },
    el("h3", {}, d.id),
    el("dl", {},
      pair("source", link(d.source)), pair("ref", d.ref), pair("commit", el("code", {}, d.commit)), pair("files", el("code", {}, d.tree_sha256)),
      pair("runs", d.command.length ? el("code", {}, d.command.join(" ")) : ""), pair("needs variables", d.env), pair("needs packages", d.packages), pair("settings", d.config),
      pair("secrets", d.secrets), pair("pages without a token", d.public_paths), d.mcp ? pair("MCP servers", el("pre", {}, JSON.stringify(d.mcp, null, 2))) : []));
}

function bundled(b) {
  return [
    el("dl", {},
      pair("source", link(b.source)), pair("commit", el("code", {}, b.commit)), pair("files", el("code", {}, b.tree_sha256)), pair("turns on", b.enabled),
      pair("sets, where nobody did", b.config), pair("asks for", b.inputs), pair("wants secrets", b.secrets),
      b.mcp ? pair("MCP servers", el("pre", {}, JSON.stringify(b.mcp, null, 2))) : []),
    b.members.map(disclosed),
  ];
}

function field(q, n) {
  const id = "answer-" + n;
  let input;
  if (q.type === "boolean") {
    input = el("select", { id }, [["", "as it is"], ["true", "yes"], ["false", "no"]].map(([v, label]) => el("option", { value: v }, label)));
  } else if (q.type === "delegate") {
    input = el("select", { id }, el("option", { value: "" }, q.default || "none"), q.choices.map((c) => el("option", { value: c }, c)));
  } else {
    input = el("input", { id, type: q.secret ? "password" : "text", autocomplete: q.secret ? "new-password" : "off", placeholder: q.default || "" });
  }
  const needed = q.required && !q.default;
  return { q, input, node: el("div", {}, el("label", { for: id }, q.label || q.key, needed ? " (required)" : null), q.help ? el("p", { class: "hint" }, q.help) : null, input) };
}

// answersOf is what was typed, as install takes it. Keys of MCP servers hold a colon or no dot.
function answersOf(fields) {
  const out = { config_inputs: {}, inputs: {}, secrets: [] };
  for (const { q, input } of fields) {
    if (input.value === "") continue;
    if (q.kind === "secret") out.secrets.push({ key: q.key, value: input.value });
    else if (q.kind === "server") out.inputs[q.key] = input.value;
    else out.config_inputs[q.key] = input.value;
  }
  return out;
}

function showPlan(p) {
  const box = byID("plan");
  const fields = (p.questions || []).map(field);
  const strangers = p.plan.sources.filter((s) => !s.known).map((s) => s.source_url);
  const consent = el("input", { type: "checkbox", id: "consent", required: true });
  const go = el("form", { id: "plan-form" },
    fields.map((f) => f.node),
    p.needs ? el("p", { class: "bad" }, "Nobody vouches for ", strangers.join(", ") || p.source, ". What it brings can run here as you.") : null,
    p.needs ? el("label", { class: "check" }, consent, el("span", {}, "I have read what it brings, and consent to exactly this")) : null,
    el("div", { class: "buttons" }, el("button", { type: "submit", id: "go" }, p.button || "Go on"), el("button", { type: "button", id: "leave", onclick: closePlan }, "Leave it")));
  go.onsubmit = async (event) => {
    event.preventDefault();
    const answers = answersOf(fields);
    if (p.needs) {
      const ok = await work("Storing your consent", (signal) => call("POST", "plugins/ack", { url: p.source, plan_digest: p.digest }, signal));
      if (!ok) return;
    }
    const before = box.firstChild;
    const hasAnswers = fields.length > 0;
    await p.go(hasAnswers ? answers : undefined);
    if (box.firstChild === before && byID("error").hidden) closePlan();
  };
  fill(box,
    el("h2", {}, p.title),
    p.seen && p.seen.description ? el("p", {}, p.seen.description) : null,
    p.seen ? p.seen.problems.map((w) => el("p", { class: "bad" }, w)) : null,
    p.plan.bundle ? bundled(p.plan.bundle) : p.plan.plugins.map(disclosed),
    el("p", { class: "hint" }, "Digest of all this: ", el("code", { id: "digest" }, p.digest)),
    go);
  box.hidden = false;
  box.scrollIntoView({ block: "start" });
}

function closePlan() {
  byID("plan").hidden = true;
  fill(byID("plan"));
}

// looked is what is at an address, with the plan of installing it; undefined where there is none, which is told.
async function looked(url, ref) {
  const seen = await work("Looking at " + url, (signal) => call("POST", "plugins/peek", { url, ref, again: true }, signal));
  if (!seen) return undefined;
  if (seen.plan) return seen;
  closePlan();
  const why = seen.members.filter((m) => m.error).map((m) => m.id + ": " + m.error).concat(seen.problems);
  complain(new Failed(0, { detail: why.join("\n") || "There is nothing to install: it comes with agent-env." }));
  return undefined;
}

async function look(url, ref) {
  const seen = await looked(url, ref);
  if (!seen) return;
  showPlan({
    plan: seen.plan, digest: seen.plan_digest, source: seen.source_url, needs: seen.needs_ack, questions: fetchOnly ? [] : seen.questions, seen,
    title: (seen.kind === "bundle" ? "The bundle " : "The plugin ") + (seen.name || seen.id) + " brings", button: fetchOnly ? "Install" : "Install and turn on",
    go: (answers) => install(url, ref, answers, false),
  });
}

async function install(url, ref, answers, force) {
  const run = (said) => install(url, ref, said || answers, force);
  const out = await agreed("It is other than what you looked at", run, () =>
    work("Installing", (signal) => call("POST", "plugins/install", { url, ref, force, ...(answers || {}) }, signal)));
  if (!out) {
    replacing(() => install(url, ref, answers, true));
    return;
  }
  closePlan();
  byID("install-form").reset();
  const what = out.installed.bundle ? "The bundle " + out.installed.bundle.id : out.installed.plugins.map((p) => p.id).join(", ");
  await after(what + (out.installed.plugins.every((p) => p.up_to_date) ? " was here already." : " is installed."), out);
}

// newWorkspace shows what a workspace's bundle brings and asks, and then has it made; one without a bundle is made at once.
async function newWorkspace(order) {
  if (!order.bundle) return create(order, undefined);
  const seen = await looked(order.bundle, order.ref);
  if (!seen) return undefined;
  if (seen.kind !== "bundle") {
    closePlan();
    complain(new Failed(0, { detail: order.bundle + " is a plugin. A workspace is made from a plugin bundle, or without one; plugins are installed in it." }));
    return undefined;
  }
  showPlan({
    plan: seen.plan, digest: seen.plan_digest, source: seen.source_url, needs: seen.needs_ack, questions: seen.questions, seen,
    title: "The workspace " + order.name + " is made from " + (seen.name || seen.id) + ", which brings", button: "Create " + order.name, go: (answers) => create(order, answers),
  });
  return undefined;
}

async function create(order, answers) {
  const run = (said) => create(order, said || answers);
  const out = await agreed("It is other than what you looked at", run, () => work("Creating " + order.name, (signal) => call("POST", "fleet", { ...order, ...(answers || {}) }, signal)));
  if (!out) {
    await partly();
    return;
  }
  closePlan();
  byID("workspace-form").reset();
  const served = out.agent.running ? ", and its agent runs." : out.agent.start_error ? ". Its agent can't be served: " + out.agent.start_error : ".";
  await after("The workspace " + out.agent.name + " is in " + out.agent.root + served, out);
}

// Wiring.

byID("token-form").onsubmit = (event) => {
  event.preventDefault();
  keepToken(byID("token").value.trim());
  byID("token").value = "";
  work("Reading", load);
};
byID("cancel").onclick = () => working && working.abort();
byID("install-form").onsubmit = (event) => {
  event.preventDefault();
  look(byID("url").value.trim(), byID("ref").value.trim());
};
byID("workspace-form").onsubmit = (event) => {
  event.preventDefault();
  newWorkspace({ name: byID("name").value.trim(), bundle: byID("bundle").value.trim(), ref: byID("bundle-ref").value.trim(), start: byID("start").checked });
};
byID("check").onclick = async () => {
  const got = await work("Asking the sources", (signal) => call("GET", "plugins/updates", undefined, signal));
  if (!got) return;
  newer = {};
  for (const u of got.plugins) newer["plugin " + u.id] = u;
  for (const u of got.bundles) newer["bundle " + u.id] = u;
  await work("Reading", load);
};
byID("sync").onclick = async () => {
  const got = await work("Bringing back files", (signal) => call("POST", "plugins/sync", {}, signal));
  if (!got) return;
  const back = got.plugins.filter((p) => p.status !== "present" && p.status !== "superseded");
  await after(back.length ? back.map((p) => p.id + ": " + p.status + (p.error ? " (" + p.error + ")" : "")).join("\n") : "All files are here, unchanged.", got);
};

if (token()) work("Reading", load);
else askToken();
