"""Sends by Telegram, Slack, IRC and e-mail: what bot.py calls with --networks. Python 3.9, no packages.

Each takes whom and the text that was decided about, and raises where it was not sent.
"""
import json, os, smtplib, socket, urllib.request
from email.message import EmailMessage


def setting(name):
    if not os.environ.get(name):
        raise RuntimeError(f"not sent: the variable {name} is not set")
    return os.environ[name]


def post(url, token, body):
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if token:
        headers["Authorization"] = "Bearer " + token
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=30) as answer:
        said = json.load(answer)
    if not said.get("ok"):
        raise RuntimeError(f"not sent: {said}")


def telegram(chat, text):
    api = os.environ.get("TELEGRAM_API", "https://api.telegram.org")
    post(f"{api}/bot{setting('TELEGRAM_TOKEN')}/sendMessage", "", {"chat_id": chat, "text": text})


def slack(channel, text):
    post(os.environ.get("SLACK_API", "https://slack.com/api") + "/chat.postMessage", setting("SLACK_TOKEN"), {"channel": channel, "text": text})


def irc(target, text):
    host, port = setting("IRC_SERVER").rsplit(":", 1)
    nick = os.environ.get("IRC_NICK", "bot")
    with socket.create_connection((host, int(port)), timeout=30) as link:
        lines = link.makefile("rw", encoding="utf-8", newline="")
        say = lambda line: (lines.write(line + "\r\n"), lines.flush())
        say(f"NICK {nick}"), say(f"USER {nick} 0 * :{nick}")
        for line in lines:
            if line.startswith("PING"):
                say("PONG" + line.rstrip()[4:])
            if line.split()[1:2] == ["001"]:  # welcome
                break
        else:
            raise RuntimeError("not sent: the server has closed the connection")
        for line in text.splitlines():  # a line of the text is no command of its own
            if len(line.encode()) > 400:  # the server would cut it
                raise RuntimeError("not sent whole: a line is too long for IRC")
            if line:
                say(f"PRIVMSG {target} :{line}")
        say("QUIT")
        for line in lines:
            if (line.split() + ["", ""])[1] in ("401", "403", "404", "407", "412"):  # no such target, or not for us
                raise RuntimeError(f"not sent: {line.strip()}")


def email(address, text):
    host, port = setting("SMTP_SERVER").rsplit(":", 1)
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = setting("MAIL_FROM"), address, "A message"
    message.set_content(text)
    with smtplib.SMTP(host, int(port), timeout=30) as server:
        server.send_message(message)


def send(text):
    session, content = text["sessionKey"], text["content"]
    channel, target = session.split(":", 1)
    networks = {"telegram": telegram, "slack": slack, "irc": irc, "email": email}
    if channel not in networks:
        raise RuntimeError(f"not sent: there is no network {channel}")
    networks[channel](target, content)
    print(f"sent {session}: {content.splitlines()[0]}", flush=True)
