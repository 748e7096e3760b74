#!/usr/bin/env python3
"""Verify an ocipd audit log without ocipd.

usage: verify.py KEY LOG [--tombstone FILE] [--checkpoints FILE]... [--database FILE [--row-key FILE]]
       verify.py [KEY] [CASE]

KEY is the log's public key as `ocipd audit key show` prints it, or a file that holds
it: the one in force, or an earlier one. LOG is a file of lines, or a directory with
audit.jsonl and its segments (these need the program zstd). It checks every byte: the
chain, the Merkle tree, and the signature of each checkpoint, also where the key was
replaced and where older records were retired. With --checkpoints it holds the log
against checkpoints that were kept elsewhere. It makes the open rows of the daemon's tables
from the records, and compares them with what the checkpoints count. With --database, the
file of a stopped daemon, it compares the rows there with them, and each record there with
the log's line. With --row-key, the daemon's keys/rows.json, it checks the seal of each row
and record too. It says what it found in one line of JSON, and ends with 4 where something
is wrong.

CASE is a folder that `ocipd audit case` made, the one this program lies in unless it is
named: each file is compared with its SHA-256 in case.json, each record with its receipt,
and the configurations, policies and signers with their digests on record. Without KEY it
uses the key in the folder, which proves that the folder is of one piece, and not whose
log it is of.

It needs Python 3.8 and nothing else, and shares no line with ocipd.
"""
import base64, datetime, glob, hashlib, hmac, json, os, re, sqlite3, subprocess, sys

LINE = re.compile(
    rb'(\{"seq":([1-9][0-9]{0,17}),"time":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)","id":".*,"prev":"([0-9a-f]{64}))","hash":"([0-9a-f]{64})"\}', re.S)
MOST_UNSIGNED = 1025


class Fault(Exception):
    def __init__(self, seq, problem):
        super().__init__(problem)
        self.seq, self.problem = seq, problem


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


# Ed25519, RFC 8032, section 5.1. Points have the coordinates X, Y, Z and T.
P, Q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def point(b):
    y = int.from_bytes(b, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    if y >= P:
        return None
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if x * x % P != xx:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != xx or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


def add(a, b):
    u, v = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = v - u, d - c, d + c, v + u
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(n, a):
    r = (0, 1, 1, 0)
    while n:
        r, a, n = (add(r, a) if n & 1 else r), add(a, a), n >> 1
    return r


BASE = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def signed(key, text, sig):
    a, r, s = point(key), point(sig[:32]), int.from_bytes(sig[32:], "little")
    if len(sig) != 64 or a is None or r is None or s >= Q:
        return False
    h = int.from_bytes(hashlib.sha512(sig[:32] + key + text).digest(), "little") % Q
    left, right = times(s, BASE), add(r, times(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


class Key:
    """A public key, NAME+HASH+KEY as signed notes have it."""

    def __init__(self, text):
        self.name, self.hash, key = text.strip().split("+", 2)
        raw = base64.b64decode(key, validate=True)
        want = sha(self.name.encode(), b"\n", raw)[:4].hex()
        if raw[:1] != b"\1" or len(raw) != 33 or want != self.hash:
            raise ValueError("no public key")
        self.key = raw[1:]


class Note:
    """A signed note that holds a checkpoint."""

    def __init__(self, text):
        self.text, _, sigs = text.partition("\n\n")
        self.text += "\n"
        lines = self.text.split("\n")[:-1]
        self.origin, self.size, self.root = lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True)
        self.extension, self.sigs = lines[3:], re.findall("^\u2014 (\\S+) (\\S+)$", sigs, re.M)
        if not self.sigs or str(self.size) != lines[1] or len(self.root) != 32:
            raise ValueError("no checkpoint")

    def by(self, key):
        for name, sig in self.sigs:
            raw = base64.b64decode(sig, validate=True)
            if name == key.name and raw[:4].hex() == key.hash:
                if not signed(key.key, self.text.encode(), raw[4:]):
                    raise ValueError("a signature of the log's key is wrong")
                return True
        return False


def root(edge):
    if not edge:
        return sha(b"")
    top = edge[-1]
    for left in reversed(edge[:-1]):
        top = sha(b"\1", left, top)
    return top


def lines(path):
    def of(data, name):
        for line in data:
            if not line.endswith(b"\n"):
                raise Fault(0, name + " is cut short: no newline at the end")
            yield line[:-1]

    if not os.path.isdir(path):
        with open(path, "rb") as f:
            yield from of(f, path)
        return
    parts = {}
    for name in glob.glob(os.path.join(glob.escape(path), "audit-*.jsonl*")):
        m = re.fullmatch(r"audit-(\d{12})-(\d{12})\.jsonl(\.zst)?", os.path.basename(name))
        if m and (m[1] not in parts or not m[3]):
            parts[m[1]] = name
    for _, name in sorted(parts.items()):
        if name.endswith(".zst"):
            p = subprocess.Popen(["zstd", "-dcq", name], stdout=subprocess.PIPE)
            yield from of(p.stdout, name)
            if p.wait() != 0:
                raise Fault(0, name + " cannot be decompressed")
        else:
            with open(name, "rb") as f:
                yield from of(f, name)
    live = os.path.join(path, "audit.jsonl")
    if os.path.exists(live):
        with open(live, "rb") as f:
            yield from of(f, live)


def opened(database):
    db = sqlite3.connect("file:%s?mode=ro" % database.replace("?", "%3f").replace("#", "%23"), uri=True)
    db.create_function("member", 2, member)
    return db


def member(text, name):
    """A member of a stored object as SQL has it: "?" if the object cannot be read."""
    try:
        value = json.loads(text).get(name) if text else None
    except (ValueError, AttributeError):
        return "?"
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def number(line):
    m = re.match(rb'\{"seq":([1-9][0-9]{0,17}),', line)
    return int(m[1]) if m else 0


def beside(log, database, retired):
    """The lines of a log, and those that its database has after them. Each record of the database must be the log's."""
    rows = opened(database).execute("SELECT seq, CAST(line AS BLOB) FROM records ORDER BY seq")
    row = next(rows, None)
    if row and row[0] < 1:
        raise Fault(0, "the database has a row of records with the number %d, which is no record's" % row[0])
    for line in log:
        yield line  # whoever asks for the next one has found it good
        seq = number(line)
        while row and row[0] < seq and row[0] <= retired:
            row = next(rows, None)
        if row and row[0] == seq:
            if row[1] != line:
                raise Fault(seq, "the database and the log have two records of this number")
            row = next(rows, None)
        elif seq > retired:
            raise Fault(seq, "the database does not hold it, and the log does" if row else "the database ends before it, and the log does not")
    while row:
        if row[0] > retired:
            if row[0] != number(row[1]):
                raise Fault(row[0], "the database has another record under this number")
            yield row[1]
        row = next(rows, None)


class Text(bytes):
    """A text of a database, which differs from bytes with the same content."""


# The tables whose rows have seals, with the columns that the seals do not cover.
SEALED = dict.fromkeys("app_processes approvals brought commitment_grants current_exchanges effects escalations exchanges grants heard lane_sent lane_taken lanes meta outbox owed paused queues releases request_keys runs seen_agents speakers task_deps task_parts used_signatures".split(), ())
SEALED.update(sessions=("last_active_at", "message_count"), spent=("count",), tasks=("blocked",))


def unsealed(database, key):
    """The rows and records of a database that have not the seal of the key of rows."""
    db = opened(database)
    db.text_factory = Text
    names = dict(db.execute("SELECT CAST(key AS BLOB), CAST(value AS BLOB) FROM meta"))
    if names.get(b"row-key", b"").decode() != sha(b"ocipd row key\0", key)[:8].hex():
        raise Fault(0, "the rows of the database are not sealed with that key")

    def seal(form, values):
        h = hmac.new(key, form, "sha256")
        for v in values:
            if v is None:
                h.update(b"n" + bytes(8))
            elif isinstance(v, int):
                h.update(b"i" + (v & (1 << 64) - 1).to_bytes(8, "big"))
            elif isinstance(v, bytes):
                h.update((b"t" if isinstance(v, Text) else b"b") + len(v).to_bytes(8, "big") + v)
            else:
                return None  # the daemon writes no fraction
        return h.digest()[:16]

    for table, counters in sorted(SEALED.items()):
        columns = [(c[1].decode(), c[5]) for c in db.execute("PRAGMA table_info(%s)" % table)]
        columns = [c for c in columns if c[0] not in counters and c[0] != "seal"]
        form = b"".join(name.encode() + b"\0" for name in [table] + [c[0] for c in columns])
        for *row, had in db.execute("SELECT %s, seal FROM %s NOT INDEXED" % (", ".join(c[0] for c in columns), table)):
            if had is None or seal(form, row) != had:
                own = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v, c in zip(row, columns) if c[1]]
                yield "%s %s: it has no seal of the daemon: somebody else has written it" % (table, " ".join(own))
    for seq, line, had in db.execute("SELECT seq, CAST(line AS BLOB), seal FROM records WHERE seq >= ? ORDER BY seq", (int(names.get(b"records-sealed-from", b"1")),)):
        m = LINE.fullmatch(line)
        if had is None or not m or seal(b"record\0", [seq, bytes.fromhex(m[5].decode())]) != had:
            yield "record %d of the database: it has no seal of the daemon: somebody else has written it" % seq


def tombstone(text):
    """The head and the edge of the tree behind the records that were retired."""
    n = Note(text)
    chain, time, edge = n.extension
    if not (chain.startswith("chain ") and time.startswith("time ") and edge.startswith("frontier ")):
        raise ValueError("no tombstone")
    edge = [base64.b64decode(h, validate=True) for h in edge[len("frontier "):].split(" ")]
    # The largest subtree first: as many as the size has binary ones.
    if bin(n.size).count("1") != len(edge) or root(edge) != n.root:
        raise ValueError("the tombstone's frontier is not that of its root")
    return n, chain[len("chain "):], time[len("time "):], edge


class Rows:
    """The open rows of the daemon's tables, as the records say."""

    # The columns, the one that counts, the own key of a record, and whether a row is open. In rows of form 1 the
    # tables of FORMER have only so many columns, and the tables of SINCE are counted from a form on.
    FORM, FORMER, SINCE = 5, {"tasks": 4, "grants": 5}, {"used_signatures": 3, "owed": 4, "app_processes": 5}
    TABLES = {
        "exchanges": (["conversation", "type", "outcome", "round", "maxRounds", "expiresAt", "forPerson"], None, ["agentId", "exchangeId"], lambda r, now: r[2] == "in_progress"),
        "escalations": (["open"], 0, ["exchangeId"], lambda r, now: r[0] != 0),
        "approvals": (["kind", "agent", "exchange", "state", "expiresAt", "digest", "given"], None, ["approvalId"], lambda r, now: r[3] == "pending"),
        "commitment_grants": (["agent", "kind", "state", "until", "uses", "maxUses"], 4, [], lambda r, now: r[2] == "in_force" and r[3] > now and not 0 < r[5] <= r[4]),
        "paused": (["at"], None, [], lambda r, now: True),
        "releases": (["state", "expiresAt"], None, ["approvalId"], lambda r, now: r[0] in ("ready", "claimed")),
        "tasks": (["tenant", "phase", "seq", "parts", "bound", "unsettled"], None, ["taskId"], lambda r, now: r[1] not in ("completed", "failed") or r[5:] not in ([], [0])),
        "grants": (["actor", "role", "task", "expiresAt", "revokedAt", "token", "holder"], None, [], lambda r, now: r[3] > now and r[4] == 0),
        "lanes": (["last"], 0, [], lambda r, now: r[0] != 0),
        "used_signatures": (["until"], None, [], lambda r, now: r[0] == 0 or r[0] > now),
        "owed": (["until"], None, [], lambda r, now: r[0] == 0 or r[0] > now),
        "app_processes": (["at"], None, [], lambda r, now: True),
    }
    SQL = {
        "exchanges": "SELECT agent, id, conversation_id, member(state, 'type'), outcome, member(state, 'round'), member(state, 'maxRounds'), expires_at, coalesce(member(state, 'forPerson'), 0) FROM exchanges WHERE outcome = 'in_progress'",
        "escalations": "SELECT exchange_id, count(*) FROM escalations GROUP BY exchange_id",
        "approvals": "SELECT id, kind, agent, exchange_id, state, expires_at, coalesce(member(body, 'digest'), ''), coalesce(member(summary, 'given'), 0) FROM approvals WHERE state = 'pending'",
        "commitment_grants": "SELECT id, agent, kind, state, until, uses, max_uses FROM commitment_grants WHERE state = 'in_force'",
        "paused": "SELECT scope, at FROM paused",
        "releases": "SELECT approval, state, expires_at FROM releases WHERE state IN ('ready', 'claimed')",
        "tasks": "SELECT id, tenant, CASE WHEN is_open <> (phase IN ('completed', 'failed')) THEN phase ELSE '?' END, seq FROM tasks WHERE is_open = 1 OR id IN (SELECT task_id FROM effects)",
        "grants": "SELECT id, member(body, 'actor'), member(body, 'role'), task_id, expires_at, member(body, 'revoked_at'), token, member(body, 'holder') FROM grants",
        "lanes": "SELECT name, last FROM lanes",
        "used_signatures": "SELECT id, until FROM used_signatures",
        "owed": "SELECT agent, lower(hex(seal)), until FROM owed",
        "app_processes": "SELECT boot, name, at FROM app_processes",
    }

    def __init__(self, first):
        self.first, self.whole, self.adopting, self.marked = first, first == 1, False, False
        self.form = self.FORM
        self.rows, self.said, self.faults, self.altered, self.now = {t: {} for t in self.TABLES}, {}, [], [], 0

    def add(self, seq, r):
        stamp = datetime.datetime.strptime(r["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
        self.now = int((stamp - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) / datetime.timedelta(milliseconds=1))
        listed, own = r.get("rows", []), (r.get("agentId", ""), r.get("exchangeId", ""))
        signed = r["actionType"] == "checkpoint" and r["event"] == "signed"
        self.marked = self.marked or bool(listed) or "opens" in r or "usesGrant" in r or signed and "state" in r
        if r["actionType"] == "security" and r.get("event") == "state_adopted":
            self.rows, self.faults, self.whole, self.adopting = {t: {} for t in self.TABLES}, [], False, True
        changes = []
        for c in listed:
            if c["table"] not in self.TABLES:
                raise Fault(seq, "it speaks of rows of a table that is not known here")
            changes.append((c["table"], tuple(c.get("key") or [r.get(m, "") for m in self.TABLES[c["table"]][2]]), c))
        if r["actionType"] == "agent_exchange" and "event" not in r and r.get("policyResult") == "allow" and all(own) and not any(t == "exchanges" and k == own for t, k, _ in changes):
            n = r.get("round", 0)
            c = {"was": {"round": n - 1}, "now": {"round": n}}
            if "opens" in r:
                c = {"now": {"conversation": r.get("conversationId", ""), "type": r.get("exchangeType", ""), "outcome": r.get("outcome", ""), "round": n, "maxRounds": r.get("maxRounds", 0), "expiresAt": r["opens"], "forPerson": 0}}
            changes.append(("exchanges", own, c))
        if "usesGrant" in r:
            changes.append(("commitment_grants", (r["usesGrant"],), {"add": 1}))
        for table, key, c in changes:
            self.change(seq, table, key, c)
        if r["actionType"] == "checkpoint" and r["event"] == "retired" and Note(r["details"]["note"]).size == self.first - 1:
            self.whole = True
        if signed and "state" in r:
            self.form = r["details"].get("rowForm", 1)
            if self.form > self.FORM:
                raise Fault(seq, "it counts rows in a form that is not known here")
            if self.adopting:
                self.whole, self.adopting = True, False
            if self.whole and self.state() != [[s["table"], s["open"], s["digest"]] for s in r["state"]]:
                self.faults.append((seq, "it counts other rows than the records before it leave"))

    def change(self, seq, table, key, c):
        columns, counter, _, is_open = self.TABLES[table]
        was = row = self.rows[table].get(key)
        fits = True
        if "add" in c:
            row = list(row or [0] * len(columns))
            row[counter] += c["add"]
            fits = was is not None or len(columns) == 1
        elif "now" in c and "was" not in c:
            if len(c["now"]) == self.FORMER.get(table):
                columns = columns[:len(c["now"])]
            row = [c["now"][name] for name in columns]
            fits = was is None or c.get("stated") and was == row
        elif "now" in c:
            row = list(row or [None] * len(columns))
            fits = was is not None and all(was[columns.index(n):][:1] == [v] for n, v in c["was"].items())
            for name, value in c["now"].items():
                if columns.index(name) < len(row):
                    row[columns.index(name)] = value
        elif "was" in c:
            fits, row = was == [c["was"][name] for name in columns if name in c["was"]], None
        else:
            return
        if was is None and not self.whole and ("was" in c or c.get("add", 0) < 0):
            return  # a row that only removed records speak of
        if not fits and self.whole:
            self.faults.append((seq, "it changes a row of %s from what no record before it made of it: %s" % (table, " ".join(key))))
        if row is not None and None not in row and is_open(row, self.now):
            self.rows[table][key] = row
        else:
            self.rows[table].pop(key, None)
        if not c.get("stated"):
            self.said[table, key] = seq

    def state(self):
        found = []
        for table, (_, _, _, is_open) in self.TABLES.items():
            groups, n = [[] for _ in range(256)], 0
            for key, row in list(self.rows[table].items()):
                if not is_open(row, self.now):
                    del self.rows[table][key]
                    continue
                texts = [str(text).encode() for text in (table, *key, *row)]
                leaf = sha(b"".join(b"%d:%s," % (len(t), t) for t in texts))
                groups[leaf[0]].append(leaf)
                n += 1
            if n:
                found.append([table, n, sha(*[sha(*sorted(g)) for g in groups]).hex()])
        return found

    def compare(self, database):
        db = opened(database)
        for table, (columns, _, own, is_open) in self.TABLES.items():
            compared = self.FORMER.get(table) if self.form == 1 else None
            if self.form < self.SINCE.get(table, 1):
                continue
            n, there = 2 if table in ("exchanges", "owed", "app_processes") else 1, {}
            # A database that an earlier version has left has no rows of a table that it did not know.
            known = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)).fetchone()
            for values in db.execute(self.SQL[table]).fetchall() if known else []:
                if table == "tasks":
                    values += self.readable(("?", "?", -1), self.parts, db, values[0])
                if table == "grants":
                    values = values[:5] + self.readable((-1, "?", "?"), self.grant, *values[5:])
                row = list(values[n:][:compared])
                if is_open(row, self.now):
                    there[values[:n]] = row
            for key in sorted(set(there) | set(self.rows[table])):
                row, says, seq = there.get(key), self.rows[table].get(key), self.said.get((table, key), 0)
                name = "%s %s: " % (table, " ".join(key))
                if says is None and not seq and not self.whole:
                    continue
                if row is None or says is None:
                    self.faults.append((0, name + ("it is not there, or not open, and record %d has it open" % seq if says else "it is open, and no record says so")))
                    continue
                for i, column in enumerate(columns[:compared]):
                    if row[i] != says[i]:
                        self.faults.append((0, name + "the row says %s %s, record %d says %s" % (column, row[i], seq, says[i])))

    @staticmethod
    def readable(otherwise, read, *args):
        """What a function reads out of columns that anybody may have written."""
        try:
            return read(*args)
        except (ValueError, TypeError, AttributeError, KeyError):
            return otherwise

    @staticmethod
    def texts(*values):
        return b"".join(b"%d:%s," % (len(v), v) for v in (str(int(v) if isinstance(v, bool) else v).encode() for v in values))

    @staticmethod
    def short(text):
        return base64.urlsafe_b64encode(sha(text)[:12]).decode()

    def grant(self, revoked, token, holder):
        """The columns revokedAt, token and holder of a grant."""
        h = json.loads(holder) if holder else None
        of = self.short(self.texts(h.get("uid", 0), h.get("exe", ""), h.get("process", ""))) if h else ""
        return 1 if revoked else 0, base64.urlsafe_b64encode(token).decode().rstrip("="), of

    def parts(self, db, task):
        """The columns parts, bound and unsettled of a task."""
        text, bound, unsettled = b"", b"", 0
        entries = db.execute("SELECT kind, place, body FROM task_parts WHERE task_id = ? AND kind <> 'checkpoint' UNION ALL SELECT 'effect', place, body FROM effects WHERE task_id = ? ORDER BY 1, 2", (task, task))
        for kind, _, body in entries.fetchall():
            p = json.loads(body)
            kept, runs = p.get("kept") or {}, []
            of = kept.get("keyed", "")
            if kind == "approval":
                of, more = p.get("request_digest", ""), (p.get("effect_id", ""), p.get("status", ""), p.get("used", False), p.get("void", False))
            elif kind == "artifact":
                more = (p.get("attempt_id", ""), p.get("current", False))
            elif kind == "attempt":
                more = (p.get("status", ""), p.get("fence", 0))
            elif kind == "effect":
                of, more, runs = p.get("request_digest", ""), (p.get("state", ""),), p.get("runs") or []
            elif kind == "review":
                more = (p.get("verdict", ""),)
            else:
                more = ()
            name = p.get("version", 0) if kind == "spec" else p.get(kind + "_id", "")
            text += self.texts(kind, name, *more)
            bound += self.texts(kind, name, kept.get("seq", 0), of)
            for r in runs:
                text += self.texts("run", r.get("run", 0), r.get("compensation", False), r.get("state", ""), r.get("approval_id", ""))
            if runs and (runs[-1].get("state") in ("started", "outcome_unknown") or p.get("compensation") is not None and not runs[-1].get("compensation")):
                unsettled += 1
        for (on,) in db.execute("SELECT depends_on FROM task_deps WHERE task_id = ? ORDER BY depends_on", (task,)).fetchall():
            bound += self.texts("dependency", on)
        return self.short(text), self.short(bound), unsettled

    def finish(self):
        found = [(0, problem) for problem in self.altered] + (self.faults if self.marked else [])
        if found:
            more = "; and %d more" % (len(found) - 10) if len(found) > 10 else ""
            raise Fault(found[0][0], "; ".join(problem for _, problem in found[:10]) + more)


def verify(key, path, stone=None, held=(), database=None, row_key=None):
    keys, ever = [key], [key]
    seq, prev, last, edge, retired, vouched = 0, "0" * 64, "", [], 0, True
    up_to, points, unknown = 0, 0, 0
    if stone:
        note, prev, last, edge = tombstone(stone)
        seq = retired = note.size
        # Where another key signs since, a record that is signed for must hold it too.
        vouched = note.origin == key.name and note.by(key)
        up_to = seq if vouched else 0
    held = sorted(held, key=lambda n: n.size)
    passed = [n for n in held if n.size < seq]
    held = held[len(passed):]

    def meet():
        while held and held[0].size == seq:
            n = held.pop(0)
            if n.origin != key.name or n.root != root(edge):
                raise Fault(seq, "the first %d records are not those of a checkpoint that is held outside" % seq)
            fits.append(n)

    fits, stones, left, rows = [], [], None, Rows(seq + 1)
    meet()
    for line in beside(lines(path), database, retired) if database else lines(path):
        m = LINE.fullmatch(line)
        if not m or hashlib.sha256(m[1]).hexdigest() != m[5].decode():
            raise Fault(seq + 1, "it does not match its hash, or is no record")
        if int(m[2]) <= retired:
            # Retired records that are still there are those that the tombstone stands for.
            if left and (int(m[2]) != left[0] + 1 or m[4].decode() != left[1]):
                raise Fault(int(m[2]), "it does not follow the record before it")
            left = int(m[2]), m[5].decode()
            continue
        if left and left != (retired, prev) and seq == retired:
            raise Fault(left[0], "it is not one of the %d records that the tombstone stands for" % retired)
        if int(m[2]) != seq + 1 or m[4].decode() != prev or m[3].decode() < last:
            raise Fault(seq + 1, "it does not follow the record before it")
        r = json.loads(line)
        rows.add(seq + 1, r)
        if r["actionType"] == "checkpoint":
            try:
                n = Note(r["details"]["note"])
                by = n.by(keys[0])
            except (ValueError, KeyError, IndexError) as e:
                raise Fault(seq + 1, "its checkpoint cannot be read: %s" % e)
            points += 1
            if n.origin != key.name:
                raise Fault(seq + 1, "its checkpoint is of another log")
            if r["event"] == "retired" and n.size < seq:
                stones.append((seq + 1, r["details"]["note"]))
            elif n.size != seq or n.root != root(edge):
                raise Fault(seq + 1, "the records before it are not those its checkpoint was signed for")
            if not by:
                if up_to > retired:
                    raise Fault(seq + 1, "its checkpoint is signed by a key that nothing in the log hands over to")
                unknown = unknown or seq + 1
            elif r["event"] != "retired":
                up_to, unknown = seq, 0
                if r["event"] == "key_rotated":
                    keys = [Key(n.extension[0][len("key "):])]
                    ever += keys
        n = seq
        edge.append(sha(b"\0", line))
        while n & 1:
            right = edge.pop()
            edge[-1], n = sha(b"\1", edge[-1], right), n >> 1
        seq, prev, last = seq + 1, m[5].decode(), m[3].decode()
        if up_to and seq - up_to > MOST_UNSIGNED:
            raise Fault(seq, "more than %d records stand here without a signed checkpoint" % MOST_UNSIGNED)
        meet()
    if held:
        raise Fault(seq + 1, "the log ends before it, and a checkpoint of %d records is held outside" % held[-1].size)
    if not up_to:
        raise Fault(seq + 1, "no checkpoint in the log is signed by the key")
    if unknown:
        raise Fault(unknown, "its checkpoint is signed by a key that nothing in the log hands over to")
    if not vouched and not any(at <= up_to and text == stone for at, text in stones):
        raise Fault(1, "nothing that is signed says that the first %d records were retired" % retired)
    if database:
        if row_key:
            rows.altered = list(unsealed(database, row_key))
        rows.compare(database)
    rows.finish()
    # A checkpoint counts only if a known key signed it.
    proven = [n.size for n in fits if any(n.by(k) for k in ever)]
    if any(n.size > up_to and not any(n.by(k) for k in ever) for n in fits):
        raise Fault(0, "a checkpoint that is held outside proves nothing: no known key signed it")
    return {"ok": True, "heldOutside": len(proven), "heldUpTo": max(proven, default=0), "records": seq - retired, "retired": retired, "log": key.name, "hash": prev, "signedUpTo": up_to, "checkpoints": points, **({"database": database, "seals": bool(row_key)} if database else {})}


def notes(text):
    """The signed notes at the end of a receipt: the checkpoint, and those that hand the log over."""
    parts = text.split("\n\n")
    return [Note(parts[i] + "\n\n" + parts[i + 1].rstrip("\n") + "\n") for i in range(0, len(parts) - 1, 2)]


def leads(line, index, path, size, top):
    """Whether an inclusion proof leads from a record to the root of a tree, RFC 9162, 2.1.3.2."""
    if index >= size:
        return False
    at, last, h = index, size - 1, sha(b"\0", line)
    for p in path:
        if last == 0:
            return False
        if at & 1 or at == last:
            h = sha(b"\1", p, h)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            h = sha(b"\1", h, p)
        at, last = at >> 1, last >> 1
    return last == 0 and h == top


def receipt(known, checked, text, line, seq):
    """Checks a receipt (C2SP tlog-proof). Checked remembers the notes whose signatures hold."""
    head, _, rest = text.partition("\n\n")
    head = head.split("\n")
    if head[0] != "c2sp.org/tlog-proof@v1" or head[1] != "index %d" % (seq - 1):
        raise Fault(seq, "its receipt is of another record")
    if rest not in checked:
        keys, found = list(known), notes(rest)
        for n in found[1:]:
            if n.origin == keys[0].name and any(n.by(k) for k in keys) and n.extension[0].startswith("key "):
                keys.append(Key(n.extension[0][len("key "):]))
        checked[rest] = found[0] if found[0].origin == keys[0].name and any(found[0].by(k) for k in keys) else None
    n = checked[rest]
    if n is None:
        raise Fault(seq, "no known key signed the checkpoint of its receipt")
    if not leads(line, seq - 1, [base64.b64decode(h, validate=True) for h in head[2:]], n.size, n.root):
        raise Fault(seq, "its receipt is not of this record")
    return n.size


def case(key, folder):
    def read(name):
        with open(os.path.join(folder, *name.split("/")), "rb") as f:
            return f.read()

    listing = read("case.json")
    stands, listed = hashlib.sha256(listing).hexdigest(), json.loads(listing)
    if read("case.sha256").decode() != stands + "  case.json\n":
        raise Fault(0, "case.json is not the one that case.sha256 stands for")
    there = {os.path.relpath(os.path.join(at, name), folder).replace(os.sep, "/") for at, _, names in os.walk(folder) for name in names}
    for name in sorted((there - {"case.sha256.sig"}) ^ (set(listed["files"]) | {"case.json", "case.sha256"})):
        raise Fault(0, name + (" is not listed in case.json" if name in there else " is missing"))
    for name, want in sorted(listed["files"].items()):
        if hashlib.sha256(read(name)).hexdigest() != want:
            raise Fault(0, name + " was changed")
    own = key is None
    known, checked, records, proven = [Key(read("log.pub").decode()) if own else key], {}, {}, 0
    for line, item in zip(read("records.jsonl").split(b"\n"), listed["records"] + [None]):
        m = LINE.fullmatch(line)
        if item is None or not m:
            break
        seq = int(m[2])
        if seq != item["seq"] or hashlib.sha256(m[1]).hexdigest() != m[5].decode():
            raise Fault(item["seq"], "it does not match its hash, or is another record")
        before = records.get(seq - 1)
        if before and before[1] != m[4].decode():
            raise Fault(seq, "it does not follow the record before it")
        if "receipt" in item:
            receipt(known, checked, read(item["receipt"]).decode(), line, seq)
            proven += 1
        records[seq] = json.loads(line), m[5].decode(), "receipt" in item
    if len(records) != len(listed["records"]) or read("records.jsonl").count(b"\n") != len(records):
        raise Fault(0, "records.jsonl does not hold the records that case.json lists")
    signed_up_to = max([n.size for n in checked.values()] + [notes(read("checkpoint.note").decode())[0].size])
    for seq, r in sorted(records.items()):
        if not r[2] and seq <= signed_up_to:
            raise Fault(seq, "it has no receipt, though the checkpoint covers it")
    by_record = {name for name in listed["files"] if name in ("records.jsonl", "log.pub", "checkpoint.note") or name.startswith("receipts/")}
    for kind in ("configurations", "policies", "signers"):
        for item in listed[kind]:
            files = item.get("files", [])
            if not files:
                continue
            if item["record"] not in records or records[item["record"]][0]["details"].get("digest") != item["digest"]:
                raise Fault(item["record"], "it did not put in force what is listed")
            h = hashlib.sha256()
            for name in files:
                part = read(name)
                if kind == "policies":
                    inner = "" if name.endswith(".data.json") else name.split("/", 2)[2]
                    if inner:
                        h.update(len(inner.encode()).to_bytes(8, "big") + inner.encode())
                    h.update(len(part).to_bytes(8, "big"))
                h.update(part)
            if "sha256:" + h.hexdigest() != item["digest"]:
                raise Fault(item["record"], ", ".join(files) + " is not what it put in force")
            by_record |= set(files)
    return {"ok": True, "case": listed["case"], "records": len(records), "proven": proven, "log": known[0].name,
            "keyFrom": "the folder" if own else "outside", "signedUpTo": signed_up_to, "notProven": sorted(seq for seq, r in records.items() if not r[2]), "sha256": stands,
            "heldByThatAlone": sorted(set(listed["files"]) - by_record)}


def main(args):
    stone, held, rest, database, row_key = None, [], [], None, None
    args = iter(args)
    for a in args:
        if a == "--tombstone":
            stone = open(next(args), encoding="utf-8").read()
        elif a == "--checkpoints":
            held += [Note(json.loads(line)["note"]) for line in open(next(args), encoding="utf-8")]
        elif a == "--database":
            database = next(args)
        elif a == "--row-key":
            with open(next(args), encoding="utf-8") as f:
                row_key = base64.b64decode(json.load(f)["key"], validate=True)
        else:
            rest.append(a)
    if rest and os.path.isfile(rest[0]):
        rest[0] = open(rest[0], encoding="utf-8").read()
    folder = rest[-1] if rest and os.path.isdir(rest[-1]) else os.path.dirname(os.path.abspath(__file__))
    if os.path.isfile(os.path.join(folder, "case.json")) and len(rest) - (folder in rest) <= 1:
        return tell(lambda: case(None if rest in ([], [folder]) else Key(rest[0]), folder))
    if len(rest) != 2 or row_key and not database:
        sys.exit(__doc__)
    key, path = rest
    beside = os.path.join(path, "audit-tombstone.note")
    if stone is None and os.path.isfile(beside):
        stone = open(beside, encoding="utf-8").read()
    return tell(lambda: verify(Key(key), path, stone, held, database, row_key))


def tell(check):
    try:
        print(json.dumps(check()))
    except Fault as f:
        print(json.dumps({"ok": False, "seq": f.seq, "problem": f.problem}))
        return 4
    except (ValueError, sqlite3.Error) as e:
        print(json.dumps({"ok": False, "seq": 0, "problem": str(e) if isinstance(e, ValueError) else "the database cannot be read: %s" % e}))
        return 4
    except (KeyError, IndexError, TypeError, FileNotFoundError) as e:
        print(json.dumps({"ok": False, "seq": 0, "problem": "what it reads is not of the form that it must have: %r" % e}))
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
