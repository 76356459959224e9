// What every page of the console uses: the token, calls of the API, and elements whose texts are texts.

const KEEP = "agentenv-token";

// The printed address carries the token once, behind #, which no server sees; then it is kept for this tab alone.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEEP, given);
  history.replaceState(null, "", location.pathname + location.search);
}

export const token = () => sessionStorage.getItem(KEEP) || "";
export const keepToken = (value) => sessionStorage.setItem(KEEP, value);

// Failed is an answer that says what is wrong.
export class Failed extends Error {
  constructor(status, body) {
    super(body && body.detail ? body.detail : "the console answered " + status);
    this.status = status;
    this.body = body || {};
  }
}

// call asks a route of the API and answers its JSON; it throws Failed, or an AbortError when signal ends it.
export async function call(method, path, body, signal) {
  const headers = { Authorization: "Bearer " + token() };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch("/api/" + path, { method, headers, signal, cache: "no-store", credentials: "omit", body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Failed(0, { detail: "the console does not answer; is agent-env up still running?" });
  }
  let out = null;
  try {
    out = await answer.json();
  } catch (e) {
    if (e.name === "AbortError") throw e;
  }
  if (!answer.ok || out === null) throw new Failed(answer.status, out);
  return out;
}

// Characters that show nothing, or turn the writing around: they are spelled out, so that no text looks like another one.
const HIDDEN = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

// plain is a text from outside as it may be shown.
export const plain = (text) => String(text).replace(HIDDEN, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");

// el makes an element. Properties are set as they are named; children are elements or texts, and texts stay texts.
export function el(name, properties, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "class") e.className = value;
    else if (key.includes("-") || key === "for") e.setAttribute(key === "for" ? "for" : key, value);
    else e[key] = value;
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    e.append(child instanceof Node ? child : text(child));
  }
  return e;
}

// text is a text from outside, apart from the direction of what is around it.
export const text = (value) => {
  const e = document.createElement("bdi");
  e.textContent = plain(value);
  return e;
};

// link is an address from outside: a link where it leads to the web, else a text.
export function link(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return text(address);
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return text(address);
  const a = document.createElement("a");
  a.href = url.href;
  a.rel = "noopener noreferrer";
  a.target = "_blank";
  a.append(text(address));
  return a;
}

export const byID = (id) => document.getElementById(id);

export const fill = (node, ...children) => node.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
