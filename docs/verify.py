#!/usr/bin/env python3
"""Verifies a Bailey ledger with nothing but its files: python3 verify.py DIRECTORY

It follows docs/ledger.md and shares no code with Bailey. It prints the head and ends with 0 when the
ledger holds, and names the first bad entry and ends with 1 when it does not."""
import hashlib
import json
import pathlib
import re
import sys

LINE = re.compile(rb'\{"hash":"([0-9a-f]{64})","entry":(.*)\}\n', re.DOTALL)
ENTRY = re.compile(rb'\{"seq":([1-9][0-9]*),"time":"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{0,8}[1-9])?Z)",'
                   rb'"kind":"([a-z][a-z0-9._-]{0,63})","data":(\{.*\})\}', re.DOTALL)
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
GENESIS = re.compile(rb'\{"format":1,"origin":"[0-9a-f]{32}","host":"[A-Za-z0-9._-]{1,253}"\}')
NAME = re.compile(r'[A-Za-z0-9._-]{1,64}')
DIGEST = re.compile(r'[0-9a-f]{64}')


def need(holds, why):
    if not holds:
        raise ValueError(why)


def once(pairs):
    need(len(dict(pairs)) == len(pairs), "a key stands twice in one object")
    return dict(pairs)


def never(word):
    raise ValueError(word + " is not JSON")


def follow(directory):
    seq, head, state, plans = 0, bytes(32), {}, {}  # state: receipt -> has its outcome; plans: digest -> was recomputed
    segments = sorted(pathlib.Path(directory).glob("[0-9]*.jsonl"))
    need(segments, "no segment there")
    for number, segment in enumerate(segments, 1):
        need(segment.name == "%08d.jsonl" % number, "segment %d is missing" % number)
        for line in segment.open("rb"):
            seq += 1
            try:
                head = check(line, seq, head, state, plans)
            except (ValueError, RecursionError) as why:
                raise ValueError("entry %d in %s: %s" % (seq, segment.name, why)) from None
    need(seq, "entry 1 is missing: the ledger is empty")
    return seq, head, state, plans


def check(line, seq, head, state, plans):
    need(len(line) <= 65536, "the line is too long")
    frame = LINE.fullmatch(line)
    entry = frame and ENTRY.fullmatch(frame[2])
    need(entry, "the line is not in the one form it may have")
    now = hashlib.sha256(head + frame[2]).digest()
    need(now.hex().encode() == frame[1], "the hash does not follow")
    need(int(entry[1]) == seq, "the number does not follow")
    kind, data = entry[3].decode(), entry[4]
    need(not re.search(rb"\s", STRING.sub(b"", data)), "white space outside strings")
    need((kind == "genesis") == (seq == 1), "genesis is entry 1 and no other")
    need(kind != "genesis" or GENESIS.fullmatch(data), "genesis is not in its form")
    facts = json.loads(data.decode(), object_pairs_hook=once, parse_constant=never)
    if kind in ("intent", "outcome"):
        need(len({key.casefold() for key in facts}) == len(facts), "two keys differ in case alone")
        receipt = facts.get("receipt")
        need(isinstance(receipt, str) and NAME.fullmatch(receipt), "no receipt is named")
        need(b':"%s"' % receipt.encode() in data, "the receipt is written with escapes")
        need(state.get(receipt) is (None if kind == "intent" else False), "%s has no place for this %s" % (receipt, kind))
        state[receipt] = kind == "outcome"
    cage = facts.get("cage") if kind == "outcome" else None
    if isinstance(cage, dict) and "planDigest" in cage:
        digest = cage["planDigest"]
        need(isinstance(digest, str) and DIGEST.fullmatch(digest) and b':"%s"' % digest.encode() in data, "the plan is named by no digest")
        need(digest in plans, "no entry before it holds the plan " + digest)
    if kind == "plan":
        plan(facts, data, plans)
    return now


def plan(facts, data, plans):
    digest, text = facts.get("digest"), facts.get("text")
    need(isinstance(digest, str) and DIGEST.fullmatch(digest), "a plan without its digest")
    if text is None:
        need(len(facts) == 2 and facts.get("redacted") is True, "a plan with neither its text nor the word redacted")
    else:
        need(len(facts) == 2 and isinstance(text, str) and text, "a plan without its text alone")
        need(text.count("\ufffd") == data.count("\ufffd".encode()), "U+FFFD stands for something else")
        need(hashlib.sha256(text.encode()).hexdigest() == digest, "the plan's text is not what its digest stands for")
    plans[digest] = plans.get(digest) or text is not None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        entries, last, calls, cages = follow(sys.argv[1])
    except (ValueError, OSError) as why:
        print("no:", why)
        sys.exit(1)
    print("ok: %d entries, %d calls (%d open), head %s" % (
        entries, len(calls), sum(not done for done in calls.values()), last.hex()))
    print("plans: %d recomputed, %d redacted" % (sum(cages.values()), sum(not done for done in cages.values())))
