#!/usr/bin/env python3
"""Verifies a Bailey ledger, or a portable receipt, with nothing but its files:

    python3 verify.py [--key KEY]... [--witness KEY]... [--quorum N] [--newest NOTE] [--seen NOTE]... DIRECTORY
    python3 verify.py --key KEY... [--witness KEY]... [--quorum N] --receipt FILE
    python3 verify.py --salt HEX --body FILE

It follows docs/ledger.md and shares no code with Bailey. It ends with 0 when the ledger or receipt holds, and
otherwise names the first bad entry or the reason and ends with 1; with 2 when there is nothing to verify, or nothing to
verify it with. The third form prints a commitment. Files are regular ones, or - for stdin. Python has no Ed25519:
signatures are verified by the program openssl, 3.0 or later."""
import argparse
import base64
import functools
import hashlib
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile

LINE = re.compile(rb'\{"hash":"([0-9a-f]{64})","entry":(.*)\}\n', re.DOTALL)
ENTRY = re.compile(rb'\{"seq":([1-9][0-9]*),"time":"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,8}[1-9])?Z)",'
                   rb'"kind":"([a-z][a-z0-9._-]{0,63})","data":(\{.*\})\}', re.DOTALL)
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
GENESIS = re.compile(rb'\{"format":1,"origin":"([0-9a-f]{32})","host":"([A-Za-z0-9._-]{1,253})"\}')
HASHES = rb'(?:"[0-9a-f]{64}"(?:,(?=")|(?=\])))*'
START = re.compile(rb'\{"size":[1-9][0-9]*,"head":"[0-9a-f]{64}","root":"[0-9a-f]{64}","edge":\[' + HASHES + rb'\],"open":\[[^\]\\]*\]\}')
CHANGE = re.compile(rb'\{"key":"([^"\\]+)",(?:"old":"([^"\\]+)",)?"signature":"([A-Za-z0-9+/]{86}==)"\}')
KEY = re.compile(r'([^\s+\x00-\x1f\x7f-\x9f]{1,512})\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})')
NOTE = re.compile(r'(([^\s+\x00-\x1f\x7f-\x9f]{1,512})\n(0|[1-9][0-9]{0,18})\n([A-Za-z0-9+/]{43}=)\n)\n((?:— [^\s+\x00-\x1f\x7f-\x9f]+ [A-Za-z0-9+/]+={0,2}\n)+)')
NAME = re.compile(r'[A-Za-z0-9._-]{1,64}')
DIGEST = re.compile(r'[0-9a-f]{64}')
OWN = {name.lower(): name for name in ("receipt", "cage", "planDigest")}


class Against(Exception):
    """What is wrong is no single entry."""


class Nothing(Exception):
    """There is nothing to verify, or nothing to verify it with: no verdict."""


def opened_file(name, flags=0):
    """A regular file, opened without waiting for a pipe."""
    try:
        there = os.open(name, os.O_RDONLY | os.O_NONBLOCK | flags)
    except OSError as why:
        raise Nothing("%s cannot be read: %s" % (name, why.strerror)) from None
    if not stat.S_ISREG(os.fstat(there).st_mode):
        os.close(there)
        raise Nothing("%s cannot be read: it is no regular file" % name)
    return os.fdopen(there, "rb")


@functools.lru_cache
def content(name, most):
    """What a file holds that somebody names, at most so many bytes of it and one."""
    if str(name) == "-":
        return sys.stdin.buffer.read(most + 1)
    if str(name) == os.devnull:
        return b""
    with opened_file(name) as file:
        return file.read(most + 1)


def need(holds, why, error=ValueError):
    if not holds:
        raise error(why)


def once(pairs):
    # Half of a surrogate pair stands for no character: all of them are the same.
    keys = {key.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for key, _ in pairs}
    need(len(keys) == len(pairs), "a key stands twice in one object")
    return dict(pairs)


def never(word):
    raise ValueError(word + " is not JSON")


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def bytes64(text):
    """Base64 in its one encoding."""
    raw = base64.b64decode(text, validate=True)
    need(base64.b64encode(raw).decode() == text, "base64 that is not in its one encoding")
    return raw


class Tree:
    """RFC 6962: of each full subtree on the right edge, its size and its root."""

    def __init__(self):
        self.edge = []

    def add(self, line):
        self.edge.append((1, sha(b"\x00", line)))
        while len(self.edge) > 1 and self.edge[-1][0] == self.edge[-2][0]:
            (size, right), (_, left) = self.edge.pop(), self.edge.pop()
            self.edge.append((2 * size, sha(b"\x01", left, right)))

    def root(self):
        if not self.edge:
            return sha()
        right = self.edge[-1][1]
        for _, left in reversed(self.edge[:-1]):
            right = sha(b"\x01", left, right)
        return right


def included(line, number, size, root, proof):
    """RFC 9162, section 2.1.3.2."""
    at, last, got = number - 1, size - 1, sha(b"\x00", line)
    need(0 <= at <= last, "the tree does not hold the entry")
    for other in proof:
        need(last > 0, "the proof is too long")
        if at & 1 or at == last:
            got = sha(b"\x01", other, got)
            while at and not at & 1:
                at, last = at >> 1, last >> 1
        else:
            got = sha(b"\x01", got, other)
        at, last = at >> 1, last >> 1
    need(last == 0 and got == root, "the proof does not lead to the root")


class Key:
    """A verifier key: NAME+ID+BASE64 of a type, 1 of a log and 4 of a witness, and an Ed25519 key."""

    def __init__(self, text):
        parts = KEY.fullmatch(text)
        need(parts, "no verifier key: " + text)
        self.text, self.name, self.raw = text, parts[1], bytes64(parts[3])
        self.id, self.witness = sha(self.name.encode(), b"\n", self.raw)[:4], self.raw[0] == 4
        need(self.raw[0] in (1, 4) and self.id.hex() == parts[2], "no verifier key: " + text)

    def verifies(self, message, signature):
        if self.witness:
            when = int.from_bytes(signature[:8], "big")
            if len(signature) != 72 or when >= 253402300800:  # the year 10000
                return False
            message, signature = b"cosignature/v1\ntime %d\n" % when + message, signature[8:]
        return len(signature) == 64 and ed25519(self.raw[1:], message, signature)


def ed25519(public, message, signature):
    with tempfile.TemporaryDirectory() as place:
        here = pathlib.Path(place)
        (here / "key").write_bytes(bytes.fromhex("302a300506032b6570032100") + public)  # RFC 8410
        (here / "message").write_bytes(message)
        (here / "signature").write_bytes(signature)
        try:
            done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-rawin", "-inkey", here / "key",
                                   "-in", here / "message", "-sigfile", here / "signature"], capture_output=True)
        except OSError as why:
            raise Nothing("no signature can be verified without the program openssl, 3.0 or later: %s" % why.strerror) from None
        return done.returncode == 0


class Ledger:
    def __init__(self):
        self.seq, self.head, self.tree, self.name = 0, bytes(32), Tree(), ""
        self.state, self.plans, self.named = {}, {}, set()  # receipt -> has its outcome; digest -> was recomputed; of outcomes
        self.keys = []  # (number of the entry, Key) of those announced
        self.roots = {0: self.tree.root()}  # of the sizes that were asked for

    def follow(self, directory, sizes):
        """Reads the segments in order, and keeps the roots at sizes."""
        place = pathlib.Path(directory)
        need(place.exists(), "there is no directory %s" % directory, Nothing)
        need(place.is_dir(), "%s is no directory" % directory, Nothing)
        segments = sorted(place.glob("[0-9]" * 8 + ".jsonl"))
        need(segments, "there is no ledger in %s: it does not contain 00000001.jsonl" % directory, Nothing)
        for number, segment in enumerate(segments, 1):
            need(segment.name == "%08d.jsonl" % number, "segment %d is missing" % number)
            with opened_file(segment, os.O_NOFOLLOW) as file:
                self.read(file, segment.name, number > 1, sizes)

    def read(self, file, name, begins, sizes):
        for line in iter(lambda: file.readline(65537), b""):
            try:
                self.add(line, begins)
            except (ValueError, RecursionError) as why:
                raise ValueError("entry %d in %s: %s" % (self.seq + 1, name, why)) from None
            begins = False
            if self.seq in sizes:
                self.roots[self.seq] = self.tree.root()
        need(not begins, "entry %d in %s: the segment is empty" % (self.seq + 1, name))

    def add(self, line, begins):
        frame, entry = parts(line)
        now = sha(self.head, frame[2])
        need(int(entry[1]) == self.seq + 1, "entry %d stands here: one was changed, taken out or is not in its place" % int(entry[1]))
        need(now.hex().encode() == frame[1], "the entry was changed, or is not in its place: the hash does not follow")
        kind, data = entry[3].decode(), entry[4]
        need((kind == "genesis") == (self.seq == 0), "genesis is entry 1 and no other")
        need((kind == "segment") == begins, "a segment begins with an entry of its own kind, and none stands elsewhere")
        if kind == "genesis":
            genesis = GENESIS.fullmatch(data)
            need(genesis, "genesis is not in its form")
            self.name = "bailey/%s/%s" % (genesis[2].decode(), genesis[1].decode())
        facts = self.account(int(entry[1]), kind, data)
        if kind == "segment":
            self.start(facts, data)
        if kind == "key":
            need(self.keys[-1][1].name == self.name, "the key is another log's")
        self.tree.add(line)
        self.seq, self.head = self.seq + 1, now

    def account(self, seq, kind, data):
        """Takes into account what the data of an entry means."""
        bare = STRING.sub(b"0", data)
        need(not re.search(rb"\s", bare), "white space outside strings")
        level = 0
        for byte in bare:
            need(level < 4096 or byte in b"]},:", "nested deeper than 4096")
            level += (byte in b"{[") - (byte in b"}]")
        facts = json.loads(data.decode(), object_pairs_hook=once, parse_constant=never, parse_int=str, parse_float=str)  # none is reckoned with
        if kind in ("intent", "outcome"):
            for own in facts, facts.get("cage"):
                names = list(own) if isinstance(own, dict) else []
                need(all(map(str.isascii, names)), "a key is not ASCII")
                need(len({name.lower() for name in names}) == len(names), "two keys differ in case alone")
                need(all(OWN.get(name.lower(), name) == name for name in names), "a key is one of ours in another case")
            receipt = facts.get("receipt")
            need(isinstance(receipt, str) and NAME.fullmatch(receipt), "no receipt is named")
            need(written(data, "receipt") == b'"%s"' % receipt.encode(), "the receipt is written with escapes")
            need(self.state.get(receipt) is (None if kind == "intent" else False), "%s has no place for this %s" % (receipt, kind))
            self.state[receipt] = kind == "outcome"
        cage = facts.get("cage") if kind == "outcome" else None
        if isinstance(cage, dict) and "planDigest" in cage:
            digest = cage["planDigest"]
            need(isinstance(digest, str) and DIGEST.fullmatch(digest) and written(data, "cage", "planDigest") == b'"%s"' % digest.encode(), "the plan is named by no digest")
            need(digest in self.plans, "no entry before it holds the plan " + digest)
            self.named.add(digest)
        if kind == "plan":
            self.plan(facts, data)
        if kind == "key":
            self.change(seq, data)
        return facts

    def plan(self, facts, data):
        digest, text = facts.get("digest"), facts.get("text")
        need(isinstance(digest, str) and DIGEST.fullmatch(digest), "a plan without its digest")
        if text is None:
            need(len(facts) == 2 and facts.get("redacted") is True, "a plan with neither its text nor the word redacted")
        else:
            need(len(facts) == 2 and isinstance(text, str) and text, "a plan without its text alone")
            need(text.count("\ufffd") == data.count("\ufffd".encode()), "U+FFFD stands for something else")
            need(hashlib.sha256(text.encode()).hexdigest() == digest, "the plan's text is not what its digest stands for")
        self.plans[digest] = self.plans.get(digest) or text is not None

    def start(self, facts, data):
        need(START.fullmatch(data), "the segment's first entry is not in its form")
        need(facts["size"] == str(self.seq) and facts["head"] == self.head.hex(), "the segment begins after another entry")
        need(facts["root"] == self.tree.root().hex() and facts["edge"] == [h.hex() for _, h in self.tree.edge], "the segment begins with another tree")
        need(facts["open"] == [id for id, done in self.state.items() if not done], "the segment begins with other receipts open")
        need(len(facts["open"]) <= 512, "the segment begins with too many receipts open")

    def change(self, seq, data):
        form = CHANGE.fullmatch(data)
        need(form, "the key entry is not in its form")
        key, old = Key(form[1].decode()), form[2] and Key(form[2].decode())
        need((old and old.text) == (self.keys and self.keys[-1][1].text or None), "the key is not announced by the one before it")
        need(key.raw not in [k.raw for _, k in self.keys], "a key that was replaced does not come back")
        by = old or key
        text = "bailey.audit/key/v1\n%s\n%s\n" % (old.text if old else "none", key.text)
        need(not key.witness and not by.witness and key.name == by.name, "it is no log's key, or another log's")
        need(by.verifies(text.encode(), bytes64(form[3].decode())), "the change of key is not signed by the one before")
        self.keys.append((seq, key))

    def at(self, size):
        return ([key for seq, key in self.keys if seq <= size] or [None])[-1]


def written(data, *names):
    """The bytes of the member at names: of a string, as it stands there."""
    at = []  # for each object or list that is open, the name at hand
    tokens = re.findall(rb'"(?:[^"\\]|\\.)*"|[^"]', data, re.DOTALL)
    for token, after in zip(tokens, tokens[1:]):
        if token in b"{[":
            at.append(None)
        elif token in b"}]":
            at.pop()
        elif token.startswith(b'"') and after == b":":
            at[-1] = json.loads(token)
        elif token.startswith(b'"') and tuple(at) == names:
            return token
    return None


def happens(when):
    """Whether there is such a moment in the calendar."""
    year, month, day, hour, minute, second = (int(n) for n in re.findall(rb"[0-9]+", when)[:6])
    days = [31, 28 + (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return 0 < month < 13 and 0 < day <= days[month - 1] and hour < 24 and minute < 60 and second < 60


def parts(line):
    need(line.strip(b"\0"), "zero bytes stand behind the last entry")
    need(len(line) <= 65536, "the line is too long")
    need(line.endswith(b"\n"), "the last line has no newline: %d bytes of it are there" % len(line))
    need(line != b"\n", "the line is empty")
    need(not line.endswith(b"\r\n"), "the line ends in CR LF: the file was copied as text, which changed its bytes")
    frame = LINE.fullmatch(line)
    entry = frame and ENTRY.fullmatch(frame[2])
    need(entry and happens(entry[2]), "the line is not in the one form it may have")
    return frame, entry


def opened(name, note, ledger, args, quorum):
    """Verifies a signed checkpoint: its origin, size, root, the log's keys and the witnesses that signed it."""
    keys = [Key(k) for k in args.key] or [k for _, k in ledger.keys if not args.receipt]
    for (_, old), (_, key) in zip(ledger.keys, ledger.keys[1:]):
        if old.text in [k.text for k in keys]:
            keys.append(key)
    known = {(k.name, k.id): k for k in keys if not k.witness}
    known.update({(k.name, k.id): k for k in map(Key, args.witness) if k.witness})
    try:
        form = NOTE.fullmatch(note.decode())
        need(note, "it is no checkpoint: it is empty")
        need(form and len(note) <= 32768, "it is no checkpoint: it is not in its form; each line ends with a newline, without CR")
        need(not ledger.name or form[2] == ledger.name, "replaced: %s: this ledger is %s, and the checkpoint is of %s" % (name, ledger.name, form[2]), Against)
        root, signed, seen = bytes64(form[4]), [], set()
        signer = "nobody"
        for line in form[5].splitlines():
            _, by, sig = line.split(" ")
            sig = bytes64(sig)
            need(len(sig) > 4 and line not in seen and len(seen) < 100, "a signature is none, or stands twice")
            seen.add(line)
            signer = "%s+%s" % (by, sig[:4].hex()) if by == form[2] else signer
            key = known.get((by, sig[:4]))
            if key:
                need(key not in signed and key.verifies(form[1].encode(), sig[4:]),
                     "the signature of %s on it is wrong: the checkpoint was changed, or another key of the same name signed it" % name_of(key))
                signed.append(key)
        logs = [k for k in signed if not k.witness and k.name == form[2]]
        need(logs, "it is signed by %s, and trusted is %s" % (signer, ", ".join(map(name_of, keys)) or "no key: none was given"))
    except ValueError as why:
        raise Against("signature: %s: %s" % (name, why)) from None
    witnesses = {k.raw for k in signed if k.witness}
    need(len(witnesses) >= quorum, "unwitnessed: %s: %d of the %d witnesses that were named cosigned it, and %d are wanted"
         % (name, len(witnesses), len(args.witness), quorum), Against)
    return form[2], int(form[3]), root, logs, len(witnesses)


def name_of(key):
    return "%s+%s" % (key.name, key.id.hex())


def agree(name, ledger, args, quorum):
    """Holds the ledger against one signed checkpoint and returns its size, its words, and whether the ledger is too short."""
    _, size, root, logs, witnesses = opened(name, content(name, 32768), ledger, args, quorum)
    if size > ledger.seq or ledger.seq == 0:
        return size, "truncated: %s: %d entries were signed and %s" % (name, size, "%d are left" % ledger.seq if ledger.seq else "none is left"), True
    need(ledger.roots.get(size) == root, "fork: %s: the first %d entries are not those that were signed" % (name, size), Against)
    need(ledger.at(size) is None or ledger.at(size).text in [k.text for k in logs], "signature: %s: that key was not the log's" % name, Against)
    return size, "held: %d entries, signed by %s, %d witnesses (checkpoint %s)" % (size, name_of(logs[0]), witnesses, name), False


def belong(ledger, args):
    """Whether the keys that were given are this ledger's: who gives one says whose ledger this has to be."""
    for key in map(Key, args.key):
        need(not ledger.name or key.name == ledger.name, "replaced: this ledger is %s, and the key is of %s" % (ledger.name, key.name), Against)


def announced(ledger, args):
    own = [k.text for _, k in ledger.keys]
    for key in args.key:
        need(key in own or not own and (args.newest or args.seen), "key: the key %s is none of those that this ledger announces" % key, Against)


def against(ledger, args):
    said, newest = [], None
    need(args.quorum < 1 or args.newest or args.seen, "unwitnessed: no checkpoint was given", Against)
    for which, name in [("newest", args.newest)] * bool(args.newest) + [("seen", name) for name in args.seen]:
        size, words, short = agree(name, ledger, args, 0 if which == "newest" and args.seen else args.quorum)
        if which == "newest":
            newest = size
        elif newest is not None and newest < size:
            raise Against("rollback: %s: its newest checkpoint is of %d entries, and one of %d was seen" % (name, newest, size))
        need(not short, words, Against)
        said.append(words)
    return said


def named(*names):
    """The sizes that notes name, verified or not."""
    forms = [NOTE.fullmatch(content(n, 32768).decode(errors="replace")) for n in names if n]
    return {int(f[3]) for f in forms if f}


def ledger_holds(args):
    ledger, broken, said = Ledger(), None, []
    try:
        ledger.follow(args.directory, named(args.newest, *args.seen))
    except ValueError as why:
        broken = why
    try:
        belong(ledger, args)
        said = against(ledger, args)
        if not broken:
            announced(ledger, args)
    except Against as why:
        need(broken and not re.match("replaced|fork", str(why)), why, Against)  # another ledger goes before a broken one
    need(not broken, broken)
    need(ledger.seq, "entry 1 is missing: the ledger is empty")
    print("ok: %d entries, %d calls (%d open), head %s" % (
        ledger.seq, len(ledger.state), sum(not done for done in ledger.state.values()), ledger.head.hex()))
    print("plans: %d recomputed, %d redacted" % (sum(ledger.plans.values()), sum(not done for done in ledger.plans.values())))
    for words in said:
        print(words)
    if said and not args.key:
        print("not proved: no other source confirmed the log's key: the ledger itself announces it")


def receipt_holds(args):
    text = content(args.receipt, 1 << 20)
    need(len(text) <= 1 << 20, "the receipt is too long")
    body, _, note = text.partition(b"\n\n")
    head, _, body = (body + b"\n").partition(b"\n")
    need(head == b"bailey.audit/receipt/v1", "that is no receipt")
    form = re.compile(rb'entry ([1-9][0-9]*)\n((?:[0-9a-f]{64}\n){0,63})(\{[^\n]*\n)')
    ledger, proved, at, last, intents, shown = Ledger(), [], 0, (0, b""), 0, []
    while at < len(body):
        one = form.match(body, at)
        need(one, "the receipt is not in its form")
        at = one.end()
        frame, entry = parts(one[3])
        seq, kind = int(one[1]), entry[3].decode()
        need(int(entry[1]) == seq > last[0], "entry %d: its number is another" % seq)
        need(seq != last[0] + 1 or not last[0] or sha(last[1], frame[2]).hex().encode() == frame[1], "entry %d: its hash does not follow" % seq)
        need(kind in ("intent", "outcome", "plan", "key"), "entry %d belongs to no receipt" % seq)
        ledger.account(seq, kind, entry[4])
        last, intents = (seq, bytes.fromhex(frame[1].decode())), intents + (kind == "intent")
        shown.append("%d %s" % (seq, kind))
        proved.append((one[3], seq, [bytes.fromhex(h.decode()) for h in one[2].split()]))
    need(intents == 1 and len(ledger.plans) < 2, "a receipt holds one intent and one plan")
    need(ledger.named.issuperset(ledger.plans), "the receipt holds a plan that no outcome in it names")
    name, size, root, logs, witnesses = opened("its checkpoint", note, ledger, args, args.quorum)
    for line, seq, proof in proved:
        included(line, seq, size, root, proof)
    need(not ledger.keys or ledger.keys[-1][1].text in [k.text for k in logs], "signature: that key was not the log's", Against)
    print("ok: receipt %s of %s, under %d entries with %d witnesses: %s" % (*ledger.state, name, size, witnesses, ", ".join(shown)))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--key", action="append", default=[])
    args.add_argument("--witness", action="append", default=[])
    args.add_argument("--quorum", type=int)
    args.add_argument("--seen", action="append", default=[])
    for name in ("--newest", "--receipt", "--salt", "--body"):
        args.add_argument(name)
    args.add_argument("directory", nargs="?")
    args = args.parse_args()
    if args.quorum is None:
        args.quorum = len({text.rpartition("+")[2] for text in args.witness})  # all: one key under two names is one
    sys.setrecursionlimit(20000)  # data may nest 4096 deep
    try:
        if args.receipt:
            receipt_holds(args)
        elif args.body:
            body, salt = content(args.body, 1 << 24), bytes.fromhex(args.salt or "")
            need(len(salt) == 32, "a salt has 32 bytes")
            need(len(body) <= 1 << 24, "no body is that long")
            print(sha(b"bailey.audit/body/v1\x00", salt, len(body).to_bytes(8, "big"), body).hex())
        else:
            need(args.directory, "name a directory")
            ledger_holds(args)
    except Nothing as why:
        print("verify.py: %s" % why, file=sys.stderr)
        sys.exit(2)
    except (ValueError, OSError, Against) as why:
        print("no:", why)
        sys.exit(1)


if __name__ == "__main__":
    main()
