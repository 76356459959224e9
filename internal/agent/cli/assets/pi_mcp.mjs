// Gives pi the tools of MCP servers, which it has no client for. The line above this file's own text sets `servers`: [{name, url}].
// Streamable HTTP alone, answers as JSON or as one stream of events.

class Client {
  constructor(server) {
    this.server = server;
    this.id = 0;
    this.headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
  }

  async post(message, signal) {
    const res = await fetch(this.server.url, { method: "POST", headers: this.headers, body: JSON.stringify(message), signal });
    const session = res.headers.get("mcp-session-id");
    if (session) this.headers["Mcp-Session-Id"] = session;
    const text = await res.text();
    if (!res.ok) throw new Error(`${this.server.name}: HTTP ${res.status} ${text.slice(0, 500)}`);
    return { text, stream: (res.headers.get("content-type") ?? "").startsWith("text/event-stream") };
  }

  async ask(method, params, signal) {
    const id = ++this.id;
    const { text, stream } = await this.post({ jsonrpc: "2.0", id, method, params }, signal);
    const messages = stream ? events(text) : [text];
    for (const m of messages) {
      const answer = JSON.parse(m);
      if (answer.id !== id) continue;
      if (answer.error) throw new Error(`${this.server.name}: ${answer.error.message}`);
      return answer.result;
    }
    throw new Error(`${this.server.name} did not answer ${method}`);
  }

  async tools() {
    const hello = await this.ask("initialize", {
      protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "pi", version: "1" },
    });
    this.headers["MCP-Protocol-Version"] = hello.protocolVersion;
    await this.post({ jsonrpc: "2.0", method: "notifications/initialized" });
    const all = [];
    let cursor;
    do {
      const page = await this.ask("tools/list", cursor ? { cursor } : {});
      all.push(...page.tools);
      cursor = page.nextCursor;
    } while (cursor);
    return all;
  }
}

function events(text) {
  return text.split(/\r?\n\r?\n/).map((e) =>
    e.split(/\r?\n/).filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trim()).join("\n")).filter((d) => d !== "");
}

function content(parts) {
  return (parts ?? []).map((p) => {
    if (p.type === "image") return { type: "image", data: p.data, mimeType: p.mimeType };
    if (p.type === "text") return { type: "text", text: p.text };
    return { type: "text", text: JSON.stringify(p) };
  });
}

function nameOf(server, tool) {
  const name = `mcp__${server}__${tool}`.replace(/[^a-zA-Z0-9_-]/g, "_");
  return name.length <= 64 ? name : tool.slice(0, 64);
}

export default async function (pi) {
  for (const server of servers) {
    const client = new Client(server);
    for (const tool of await client.tools()) {
      pi.registerTool({
        name: nameOf(server.name, tool.name),
        label: tool.title ?? tool.name,
        description: tool.description ?? tool.name,
        parameters: tool.inputSchema,
        async execute(_id, params, signal) {
          const result = await client.ask("tools/call", { name: tool.name, arguments: params }, signal);
          const parts = content(result.content);
          if (result.isError) throw new Error(parts.map((p) => p.text ?? "").join("\n") || "the tool failed");
          return { content: parts, details: {} };
        },
      });
    }
  }
}
