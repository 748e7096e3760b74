// Sends by Telegram, Slack, IRC and e-mail: what bot.mjs calls with --networks. Node 18, no packages.
//
// Each takes whom and the text that was decided about, and throws where it was not sent.
import { connect } from "node:net";
import { createInterface } from "node:readline";

const { env } = process;

function setting(name) {
  if (!env[name]) throw new Error(`not sent: the variable ${name} is not set`);
  return env[name];
}

async function post(url, token, body) {
  const headers = { "Content-Type": "application/json; charset=utf-8", ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(30_000) });
  const said = await answer.json();
  if (!said.ok) throw new Error(`not sent: ${JSON.stringify(said)}`);
}

const telegram = (chat, text) =>
  post(`${env.TELEGRAM_API ?? "https://api.telegram.org"}/bot${setting("TELEGRAM_TOKEN")}/sendMessage`, "", { chat_id: chat, text });

const slack = (channel, text) =>
  post(`${env.SLACK_API ?? "https://slack.com/api"}/chat.postMessage`, setting("SLACK_TOKEN"), { channel, text });

// converse says and hears lines; talk does both.
async function converse(server, talk) {
  const [host, port] = [server.slice(0, server.lastIndexOf(":")), Number(server.slice(server.lastIndexOf(":") + 1))];
  const link = connect({ host, port, timeout: 30_000 });
  link.on("timeout", () => link.destroy(new Error(`${server} says nothing`)));
  const failed = new Promise((_, refuse) => link.on("error", refuse));
  try {
    await Promise.race([failed, talk((line) => link.write(line + "\r\n"), createInterface({ input: link }))]);
  } finally {
    link.destroy();
  }
}

const irc = (target, text) => converse(setting("IRC_SERVER"), async (say, lines) => {
  const nick = env.IRC_NICK ?? "bot";
  const parts = text.split(/\r\n|\r|\n/).filter((line) => line); // a line of the text is no command of its own
  if (parts.some((line) => Buffer.byteLength(line) > 400)) throw new Error("not sent: a line is too long for IRC");
  say(`NICK ${nick}`);
  say(`USER ${nick} 0 * :${nick}`);
  let welcome = false;
  for await (const line of lines) {
    const code = line.split(" ")[1];
    if (line.startsWith("PING")) say("PONG" + line.slice(4));
    else if (code === "001") {
      welcome = true;
      for (const part of parts) say(`PRIVMSG ${target} :${part}`);
      say("QUIT");
    } else if (["401", "403", "404", "407", "412"].includes(code)) throw new Error(`not sent: ${line}`); // no such target, or not for us
  }
  if (!welcome) throw new Error("not sent: the server has closed the connection");
});

const email = (address, text) => converse(setting("SMTP_SERVER"), async (say, lines) => {
  if (/[\s<>]/.test(address)) throw new Error(`not sent: ${address} is no address`);
  const body = Buffer.from(text).toString("base64").match(/.{1,76}/g) ?? [];
  const mail = [`From: ${setting("MAIL_FROM")}`, `To: ${address}`, "Subject: A message", "MIME-Version: 1.0",
    "Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: base64", "", ...body, "."].join("\r\n");
  const steps = ["EHLO localhost", `MAIL FROM:<${setting("MAIL_FROM")}>`, `RCPT TO:<${address}>`, "DATA", mail, "QUIT"];
  for await (const line of lines) {
    if (!/^[23]/.test(line)) throw new Error(`not sent: ${line}`);
    if (line[3] === "-") continue; // more of the same answer comes
    if (steps.length === 0) return;
    say(steps.shift());
  }
  if (steps.length > 0) throw new Error("not sent: the server has closed the connection");
});

export async function send({ sessionKey: session, content }) {
  const [channel, target] = [session.slice(0, session.indexOf(":")), session.slice(session.indexOf(":") + 1)];
  const network = new Map(Object.entries({ telegram, slack, irc, email })).get(channel);
  if (!network) throw new Error(`not sent: there is no network ${channel}`);
  await network(target, content);
  console.log(`sent ${session}: ${content.split("\n")[0]}`);
}
