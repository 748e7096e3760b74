#!/usr/bin/env python3
"""Verify an ocipd audit log without ocipd.

usage: verify.py KEY LOG [--tombstone FILE] [--checkpoints FILE]...

KEY is the log's public key as `ocipd audit key show` prints it, or a file that holds
it: the one in force, or an earlier one. LOG is a file of lines, or a directory with
audit.jsonl and its segments (these need the program zstd). It checks every byte: the
chain, the Merkle tree, and the signature of each checkpoint, also where the key was
replaced and where older records were retired. With --checkpoints it holds the log
against checkpoints that were kept elsewhere. It says what it found in one line of
JSON, and ends with 4 where something is wrong.

It needs Python 3.8 and nothing else, and shares no line with ocipd.
"""
import base64, glob, hashlib, json, os, re, subprocess, sys

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


def verify(key, path, stone=None, held=()):
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
            if not any(n.by(k) for k in ever) and n.size > up_to:
                loose.append(n)

    loose, stones, left = [], [], None
    meet()
    for line in lines(path):
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
    if any(n.size > up_to for n in loose):
        raise Fault(0, "a checkpoint that is held outside proves nothing: no known key signed it")
    return {"ok": True, "records": seq - retired, "retired": retired, "log": key.name, "hash": prev, "signedUpTo": up_to, "checkpoints": points}


def main(args):
    stone, held, rest = None, [], []
    args = iter(args)
    for a in args:
        if a == "--tombstone":
            stone = open(next(args), encoding="utf-8").read()
        elif a == "--checkpoints":
            held += [Note(json.loads(line)["note"]) for line in open(next(args), encoding="utf-8")]
        else:
            rest.append(a)
    if len(rest) != 2:
        sys.exit(__doc__)
    key, path = rest
    if os.path.isfile(key):
        key = open(key, encoding="utf-8").read()
    beside = os.path.join(path, "audit-tombstone.note")
    if stone is None and os.path.isfile(beside):
        stone = open(beside, encoding="utf-8").read()
    try:
        print(json.dumps(verify(Key(key), path, stone, held)))
    except Fault as f:
        print(json.dumps({"ok": False, "seq": f.seq, "problem": f.problem}))
        return 4
    except ValueError as e:
        print(json.dumps({"ok": False, "seq": 0, "problem": str(e)}))
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
