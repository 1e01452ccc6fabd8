package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func seeds(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint(len(data)/2), byte('x'))
	}
}

// FuzzVerify checks that no input causes a panic. If a ledger verifies, it must have one encoding, and must not verify
// if a byte changes.
func FuzzVerify(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte, at uint, to byte) {
		report, err := Verify(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if !report.OK {
			if b := report.FirstBad; b == nil || b.Entry != report.Entries+1 || b.Offset < 0 || b.Offset > int64(len(data)) {
				t.Fatalf("%+v", report)
			}
			return
		}
		if again := reencode(t, data); !bytes.Equal(again, data) {
			t.Fatalf("%q\nverifies, and its entries encode to\n%q", data, again)
		}
		bad := bytes.Clone(data)
		if i := at % uint(len(bad)); bad[i] != to {
			bad[i] = to
			if report, _ := Verify(bytes.NewReader(bad)); report.OK {
				t.Fatalf("byte %d changed to %q: ok", i, to)
			}
		}
	})
}

func reencode(t *testing.T, data []byte) (out []byte) {
	for e, err := range Scan(bytes.NewReader(data), Head{}) {
		if err != nil {
			t.Fatal(err)
		}
		line, h, err := Append(e.Prev, e)
		if err != nil || h != e.Hash {
			t.Fatal(h, e.Hash, err)
		}
		out = append(out, line...)
	}
	return out
}

// FuzzData compares the strict walker with encoding/json. It must accept only compact JSON, and must refuse compact
// JSON only for duplicate keys, invalid UTF-8 and depth.
func FuzzData(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,-2.5e+3,true,null,"\u00e9\n"]}`, `{"a":{"b":{}},"b":[[],{}]}`, `{"a":01}`, `{"a":1 }`, `{"a":1,"\u0061":2}`, "{\"a\":\"\xff\"}", `{"a":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, err := checkData("x", data)
		var compact bytes.Buffer
		valid := json.Compact(&compact, data) == nil && bytes.Equal(compact.Bytes(), data) && len(data) > 0 && data[0] == '{' && utf8.Valid(data)
		if err == nil && !valid {
			t.Fatalf("accepted %q", data)
		}
		if err != nil && valid && !twice(data) && bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) < maxDepth {
			t.Fatalf("refused %q: %v", data, err)
		}
	})
}

// twice reports whether an object in data has a duplicate key, so that decoding loses a member.
func twice(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	type level struct {
		keys map[string]bool // nil in an array
		key  bool            // the next string is a key
	}
	var stack []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		if top := len(stack) - 1; top >= 0 && stack[top].keys != nil {
			if s, ok := tok.(string); ok && stack[top].key {
				if stack[top].keys[s] {
					return true
				}
				stack[top].keys[s], stack[top].key = true, false
				continue
			}
			stack[top].key = true
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{map[string]bool{}, true})
		case json.Delim('['):
			stack = append(stack, level{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	good := Entry{Seq: 1, Time: time.Unix(0, 0), Kind: "x", Data: json.RawMessage(`{}`)}
	if _, _, err := Append(Hash{}, good); err != nil {
		t.Fatal(err)
	}
	deep := bytes.Repeat([]byte(`{"a":`), maxDepth)
	for name, change := range map[string]func(*Entry){
		"no number":  func(e *Entry) { e.Seq = 0 },
		"far future": func(e *Entry) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"far past":   func(e *Entry) { e.Time = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
		"no kind":    func(e *Entry) { e.Kind = "" },
		"quote":      func(e *Entry) { e.Kind = `x","data":{},"y":"` },
		"newline":    func(e *Entry) { e.Kind = "x\n" },
		"no data":    func(e *Entry) { e.Data = nil },
		"array":      func(e *Entry) { e.Data = json.RawMessage(`[]`) },
		"line break": func(e *Entry) { e.Data = json.RawMessage("{\n}") },
		"too deep":   func(e *Entry) { e.Data = append(append(deep, '1'), bytes.Repeat([]byte("}"), maxDepth)...) },
		"5 MiB":      func(e *Entry) { e.Data = json.RawMessage(`{"a":"` + string(bytes.Repeat([]byte("x"), 5<<20)) + `"}`) },
		"no receipt": func(e *Entry) { e.Kind = KindIntent },
		"receipt":    func(e *Entry) { e.Kind, e.Data = KindOutcome, json.RawMessage(`{"receipt":"a b"}`) },
	} {
		e := good
		change(&e)
		if line, _, err := Append(Hash{}, e); err == nil {
			t.Errorf("%s: %.200s", name, line)
		}
	}
}

// TestManyKeys checks that many keys are looked up like few, and that a hostile number of them costs little.
func TestManyKeys(t *testing.T) {
	object := func(n int, last string) []byte {
		b := []byte(`{"receipt":"r-1"`)
		for i := range n {
			b = append(b, `,"`...)
			b = append(b, byte(0x61+i%26), byte(0x61+i/26%26), byte(0x61+i/676))
			b = append(b, `":1`...)
		}
		return append(append(b, last...), '}')
	}
	for _, n := range []int{1, fewKeys - 2, fewKeys - 1, fewKeys, fewKeys + 1, 7000} {
		for last, want := range map[string]map[string]bool{
			``:                   {"x": true, KindIntent: true},
			`,"aaa":2`:           {"x": false, KindIntent: false},
			`,"AAA":2`:           {"x": true, KindIntent: false},
			`,"\u0061aa":2`:      {"x": false, KindIntent: false},
			`,"Receipt":"r-2"`:   {"x": true, KindIntent: false},
			`,"zzzz":{"aaa":1}`:  {"x": true, KindIntent: true},
			`,"zzzz":{"Z":1}`:    {"x": true, KindIntent: true},
			`,"zz":{"Z":1,"Z":}`: {"x": false, KindIntent: false},
		} {
			for kind, ok := range want {
				if _, _, err := checkData(kind, object(n, last)); (err == nil) != ok {
					t.Errorf("%d keys, then %s, in %s: %v", n, last, kind, err)
				}
			}
		}
	}
}

func TestHashText(t *testing.T) {
	var h, back Hash
	h[0], h[31] = 0xab, 0xcd
	text, err := h.MarshalText()
	if err != nil || string(text) != h.String() || back.UnmarshalText(text) != nil || back != h {
		t.Errorf("%s %v %v", text, back, err)
	}
	for _, bad := range []string{"", "ab", h.String() + "0", "AB" + h.String()[2:], "zz" + h.String()[2:]} {
		if back.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q is a hash", bad)
		}
	}
}

// FuzzPlan compares ParsePlan with untyped decoding. A plan that is accepted must have two members with their exact
// names, and a text that loses nothing in UTF-8.
func FuzzPlan(f *testing.F) {
	digest := strings.Repeat("0a", 32)
	for _, s := range []string{`{"digest":"D","text":"a\u00e9\ufffd"}`, `{"digest":"D","redacted":true}`, `{"digest":"D","Text":"a"}`, `{"digest":"D","text":"\ud800"}`, `{}`, `null`} {
		f.Add([]byte(strings.ReplaceAll(s, "D", digest)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		plan, err := ParsePlan(data)
		if err != nil {
			return
		}
		var loose map[string]any
		if err := json.Unmarshal(data, &loose); err != nil {
			t.Fatalf("accepted %q: %v", data, err)
		}
		want := map[string]any{"digest": plan.Digest, "text": plan.Text}
		if plan.Redacted {
			want = map[string]any{"digest": plan.Digest, "redacted": true}
		}
		if !maps.Equal(loose, want) || len(plan.Digest) != 64 || (plan.Text == "") != plan.Redacted {
			t.Fatalf("%q is %+v", data, plan)
		}
	})
}

// FuzzLine checks that a line that is read is the only encoding of its content.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"hash":"2b637349740fcb8ac0496e00b33251951a161abd10672915ee01a023e7add851","entry":{"seq":1,"time":"2026-11-03T09:00:01Z","kind":"x","data":{}}}` + "\n"))
	f.Add([]byte(frameHash + frameEntry + frameEnd))
	f.Add([]byte(`{"hash":"0000000000000000000000000000000000000000000000000000000000000000","entry":{"seq":0,"time":"0000-01-01T00:00:00Z","kind":"a","data":{}}}` + "\n"))
	f.Add([]byte(`{"hash":"2b637349740fcb8ac0496e00b33251951a161abd10672915ee01a023e7add851","entry":{"seq":01,"time":"2026-11-03T09:00:01.0Z","kind":"X","data":{"a":1,"a":2}}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		claimed, raw, err := parseLine(data)
		if err != nil {
			return
		}
		e, err := parseEntry(raw)
		if err != nil {
			return
		}
		line, h, err := Append(Hash{}, e)
		if err != nil || !bytes.Equal(line[len(line)-len(raw)-len(frameEnd):], data[len(data)-len(raw)-len(frameEnd):]) || len(line) != len(data) {
			t.Fatalf("%q\nreads as\n%q: %v", data, line, err)
		}
		if seq, ok := parseSeq(raw); !ok || seq != e.Seq || h != hashEntry(Hash{}, raw) || claimed.String() != string(data[len(frameHash):len(frameHash)+64]) {
			t.Fatalf("%q: %d %s", data, seq, claimed)
		}
	})
}

// FuzzReadStart checks that the first line of a segment, if it is read, is encoded to the same line again.
func FuzzReadStart(f *testing.F) {
	b := day(f, 1)
	line, _, _ := bytes.Cut(b.segments[1], []byte("\n"))
	f.Add(append(line, '\n'))
	f.Add(b.segments[0])
	f.Add([]byte(frameHash))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadStart(data)
		if err != nil {
			return
		}
		tree, err := s.Tree()
		if err != nil || tree.Root() != s.Root || tree.Size() != s.Size {
			t.Fatalf("%q: %v", data, err)
		}
		_, raw, _ := parseLine(data)
		e, err := parseEntry(raw)
		if err != nil || s.After() != (Head{e.Seq - 1, s.Head}) {
			t.Fatalf("%q: %v", data, err)
		}
		e.Data, err = json.Marshal(s)
		if again, _, aerr := Append(s.Head, e); err != nil || aerr != nil || !bytes.Equal(again, data) {
			t.Fatalf("%q\nreads as\n%q", data, again)
		}
	})
}

// FuzzFollow checks that Follow returns the same head as a verification that succeeds.
func FuzzFollow(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte, at uint, to byte) {
		if len(data) > 0 {
			data = bytes.Clone(data)
			data[at%uint(len(data))] = to
		}
		var tree Tree
		head, err := Follow(bytes.NewReader(data), Head{}, &tree)
		r, verr := Verify(bytes.NewReader(data))
		if verr != nil || tree.Size() != head.Seq || head.Seq < r.Entries {
			t.Fatalf("%v %v %+v", head, verr, r)
		}
		if r.OK && (err != nil || head.Hash != r.Head || tree.Root() != r.Root) {
			t.Fatalf("%v %v %+v", head, err, r)
		}
	})
}

// FuzzParseCheckpoint checks that the text of a note has one encoding.
func FuzzParseCheckpoint(f *testing.F) {
	f.Add(day(f, 1).roots[5].Text())
	f.Add("example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n")
	f.Add("a\n0\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseCheckpoint(text); err == nil && (c.Text() != text || c.Size > maxSize) {
			t.Fatalf("%q reads as %q", text, c.Text())
		}
	})
}

// FuzzOpen checks that a note that opens is the one that was signed, except for signatures of unknown keys.
func FuzzOpen(f *testing.F) {
	b := day(f, 1)
	signed := b.cosign(b.sign(6, 1), 1)
	f.Add(signed)
	f.Add(append(bytes.Clone(signed), "— somebody AAAAAAAA\n"...))
	f.Add(b.sign(5, 2))
	trust := Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := trust.Open(data)
		if err != nil {
			var bad *Bad
			if !errors.As(err, &bad) || len(bad.Detail) == 0 {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		if bad := checkShape(data); bad != nil {
			t.Fatalf("%q opens, and %v", data, bad)
		}
		if s.Checkpoint != b.roots[6] || len(s.Keys) != 1 || len(s.Cosignatures) != 1 || s.Cosignatures[0].Time != time.Unix(1001, 0).UTC() {
			t.Fatalf("%q opens as %+v", data, s)
		}
		for line := range bytes.Lines(signed) {
			if !bytes.Contains(data, line) {
				t.Fatalf("%q opens without %q", data, line)
			}
		}
	})
}

// FuzzCosignature checks that only the witness's own signature verifies.
func FuzzCosignature(f *testing.F) {
	b := day(f, 1)
	text := []byte(b.roots[5].Text())
	by, err := newCosigner("witness.example/w1", private(101), func() time.Time { return time.Unix(1001, 0) })
	do(f, err)
	good, err := by.Sign(text)
	do(f, err)
	f.Add(good)
	f.Add(good[8:])
	f.Add(bytes.Repeat([]byte{0xff}, 72))
	witness := b.witness(1)
	f.Fuzz(func(t *testing.T, sig []byte) {
		if when, rest, ok := splitCosignature(sig); ok && (when >= 1<<63 || len(rest) != 64) {
			t.Fatalf("%x: %d %x", sig, when, rest)
		}
		if witness.Verify(text, sig) && !bytes.Equal(sig, good) {
			t.Fatalf("%x verifies", sig)
		}
	})
}

// FuzzParseReceipt checks that a portable receipt has one encoding, and that only the proven one verifies.
func FuzzParseReceipt(f *testing.F) {
	b := day(f, 1)
	size := len(b.roots) - 1
	good := b.portable("r-2", b.sign(size, 1), size)
	f.Add(good)
	f.Add([]byte(receiptHead + "entry 1\n{}\n\n"))
	f.Add(good[:len(good)/2])
	trust := b.trust(1)
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := ParseReceipt(data); err == nil && !bytes.Equal(r.Text(), data) {
			t.Fatalf("%q reads as %q", data, r.Text())
		}
		v, err := VerifyReceipt(data, trust)
		if err == nil && v.Checkpoint != b.roots[size] {
			t.Fatalf("%q verifies", data)
		}
	})
}

// FuzzParseKey checks that a verifier key has one encoding.
func FuzzParseKey(f *testing.F) {
	b := day(f, 1)
	f.Add(b.key(1).String())
	f.Add(b.witness(1).String())
	f.Add("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
	f.Add("a+00000000+AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := ParseKey(text); err == nil && k.String() != text {
			t.Fatalf("%q reads as %q", text, k)
		}
	})
}

// FuzzParseKeyChange checks that a change of key has one encoding and is signed by the previous key.
func FuzzParseKeyChange(f *testing.F) {
	b := day(f, 1)
	for _, old := range []Key{{}, b.key(1)} {
		c, err := newKeyChange(old, b.key(2), private(map[bool]byte{true: 2, false: 1}[old == Key{}]))
		do(f, err)
		data, err := json.Marshal(c)
		do(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"key":"","signature":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseKeyChange(data)
		if err != nil {
			return
		}
		if again, err := json.Marshal(c); err != nil || !bytes.Equal(again, data) || c.checkChange() != nil {
			t.Fatalf("%q reads as %q", data, again)
		}
	})
}
