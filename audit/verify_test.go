package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"bailey/internal/ktest"
)

// TestVectors checks vectors that were made by an encoder that shares no code with this package.
func TestVectors(t *testing.T) {
	var vectors []struct {
		File    string `json:"file"`
		OK      bool   `json:"ok"`
		Entries uint64 `json:"entries"`
		Entry   uint64 `json:"entry"`
		Reason  Reason `json:"reason"`
		PlanCount
	}
	if err := json.Unmarshal(read(t, "vectors.json"), &vectors); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) != len(vectors) {
		t.Fatalf("%d files, %d vectors, %v", len(files), len(vectors), err)
	}
	for _, v := range vectors {
		t.Run(v.File, func(t *testing.T) {
			data := read(t, v.File)
			for name, r := range map[string]io.Reader{"whole": bytes.NewReader(data), "bytewise": iotest.OneByteReader(bytes.NewReader(data))} {
				report, err := Verify(r)
				if err != nil {
					t.Fatal(err)
				}
				if report.OK != v.OK || report.Entries != v.Entries {
					t.Errorf("%s: ok %v, %d entries, %v", name, report.OK, report.Entries, report.FirstBad)
				}
				if v.OK && report.Plans != v.PlanCount {
					t.Errorf("%s: plans %+v, want %+v", name, report.Plans, v.PlanCount)
				}
				if !v.OK && (report.FirstBad == nil || report.FirstBad.Entry != v.Entry || report.FirstBad.Reason != v.Reason) {
					t.Errorf("%s: %+v, want entry %d %s", name, report.FirstBad, v.Entry, v.Reason)
				}
			}
		})
	}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReport(t *testing.T) {
	report, err := Verify(bytes.NewReader(read(t, "good.jsonl")))
	if err != nil {
		t.Fatal(err)
	}
	if report.Intents != 2 || report.Outcomes != 1 || report.Open != 1 || report.Host != "castle" || report.Backward != 0 {
		t.Errorf("%+v", report)
	}
	report, err = Verify(bytes.NewReader(read(t, "clock-back.jsonl")))
	if err != nil || report.Backward != 1 || !report.OK {
		t.Errorf("a clock that went back: %+v, %v", report, err)
	}
	out, err := json.Marshal(report)
	if err != nil || !strings.HasPrefix(string(out), `{"ok":true,"entries":2,"segments":1,"origin":"00`) {
		t.Errorf("%s, %v", out, err)
	}
	if report, err = Verify(); err != nil || report.OK || report.FirstBad == nil || report.FirstBad.Reason != Empty {
		t.Errorf("no segment: %+v, %v", report, err)
	}
}

// Case 11: one byte is changed; verification must name the entry that contains it.
func TestEveryByteCounts(t *testing.T) {
	ktest.Long(t)
	good := read(t, "good.jsonl")
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			line := uint64(bytes.Count(good[:i], []byte("\n"))) + 1
			if report, _ := Verify(bytes.NewReader(bad)); report.OK || report.FirstBad.Entry != line {
				t.Fatalf("bit %d of byte %d changed, in entry %d: %v", bit, i, line, report.FirstBad)
			}
		}
		if report, _ := Verify(bytes.NewReader(append(bytes.Clone(good[:i]), good[i+1:]...))); report.OK {
			t.Fatalf("byte %d left out: ok", i)
		}
	}
}

// TestCutAnywhere checks that a ledger that is cut inside a line is reported as torn there, and as nothing else.
func TestCutAnywhere(t *testing.T) {
	good := read(t, "good.jsonl")
	genesis := bytes.IndexByte(good, '\n') + 1
	for i := genesis; i < len(good); i++ {
		report, err := Verify(bytes.NewReader(good[:i]))
		if err != nil {
			t.Fatal(err)
		}
		if whole := good[i-1] == '\n'; report.OK != whole || !whole && report.FirstBad.Reason != Torn {
			t.Fatalf("cut at %d: %+v", i, report.FirstBad)
		}
	}
}

func TestSegments(t *testing.T) {
	b := day(t, 1)
	b.rotate()
	b.call("r-3")
	report := b.verify(Check{}, "")
	if report.Segments != 3 || report.Head != b.head.Hash || report.Entries != b.head.Seq {
		t.Fatalf("three segments: %+v", report)
	}
	one, two, three := b.segments[0], b.segments[1], b.segments[2]
	for name, c := range map[string]struct {
		segments [][]byte
		segment  int
		entry    uint64
		reason   Reason
	}{
		"first missing":  {[][]byte{two, three}, 1, 1, Chain},
		"second missing": {[][]byte{one, three}, 2, 7, Chain},
		"repeated":       {[][]byte{one, one, two}, 2, 7, Chain},
		"reordered":      {[][]byte{one, three, two}, 2, 7, Chain},
		"torn":           {[][]byte{one, two, three[:len(three)-1]}, 3, 15, Torn},
		"torn first":     {[][]byte{one[:len(one)-1], two, three}, 1, 6, Frame},
		"joined":         {[][]byte{append(bytes.Clone(one), two...), three}, 1, 7, Started},
		"cut in two":     {[][]byte{bytes.Join(bytes.SplitAfter(one, []byte("\n"))[:3], nil), bytes.Join(bytes.SplitAfter(one, []byte("\n"))[3:], nil)}, 2, 4, Started},
		"emptied":        {[][]byte{one, nil, two}, 2, 7, Started},
	} {
		report, err := Verify(readers(c.segments...)...)
		if err != nil || report.OK || report.FirstBad.Segment != c.segment || report.FirstBad.Entry != c.entry || report.FirstBad.Reason != c.reason {
			t.Errorf("%s: %v, %v", name, report.FirstBad, err)
		}
	}
}

// chain encodes entries after a genesis.
func chain(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	genesis := json.RawMessage(`{"format":1,"origin":"000102030405060708090a0b0c0d0e0f","host":"castle"}`)
	var out []byte
	var prev Hash
	for i, e := range append([]Entry{{Kind: KindGenesis, Data: genesis}}, entries...) {
		e.Seq = uint64(i + 1)
		line, h, err := Append(prev, e)
		if err != nil {
			t.Fatal(err)
		}
		out, prev = append(out, line...), h
	}
	return out
}

func TestLongestLine(t *testing.T) {
	overhead := len(chain(t, Entry{Kind: "x", Data: json.RawMessage(`{"a":""}`)})) - len(chain(t))
	fill := strings.Repeat("x", MaxLine-overhead)
	longest := Entry{Seq: 2, Kind: "x", Data: json.RawMessage(`{"a":"` + fill + `"}`)}
	data := chain(t, longest, Entry{Kind: "x", Data: json.RawMessage(`{}`)})
	if report, err := Verify(bytes.NewReader(data)); err != nil || !report.OK || report.Entries != 3 {
		t.Errorf("the longest line: %+v, %v", report, err)
	}
	longest.Data = json.RawMessage(`{"a":"` + fill + `x"}`)
	if _, _, err := Append(Hash{}, longest); err == nil {
		t.Error("Append takes an entry that is too long")
	}
	data = bytes.Replace(data, []byte("xxx"), []byte("xxxx"), 1)
	report, err := Verify(bytes.NewReader(data))
	if err != nil || report.OK || report.FirstBad.Entry != 2 || report.FirstBad.Reason != Frame {
		t.Errorf("a line too long: %v, %v", report.FirstBad, err)
	}
}

// TestLongTail checks that a valid line after a long damaged part is found, and that memory is limited.
func TestLongTail(t *testing.T) {
	good := chain(t)
	next := chain(t, Entry{Kind: "x", Data: json.RawMessage(`{}`)})[len(good):]
	for _, n := range []int{1, MaxLine - 1, MaxLine, 2*MaxLine - len(next), 2*MaxLine - 1, 2 * MaxLine, 5 << 20} {
		for _, fill := range []string{"\x00", "x", frameHash} {
			tail := strings.NewReader(strings.Repeat(fill, n/len(fill)+1)[:n])
			report, err := Verify(io.MultiReader(bytes.NewReader(good), tail))
			if err != nil || report.OK || report.FirstBad.Reason != Torn || report.FirstBad.Offset != int64(len(good)) {
				t.Errorf("%d bytes of %q: %v, %v", n, fill, report.FirstBad, err)
			}
			if fill == frameHash {
				continue // more candidates than are tried
			}
			tail.Seek(0, io.SeekStart)
			report, err = Verify(io.MultiReader(bytes.NewReader(good), tail, bytes.NewReader(next)))
			if err != nil || report.OK || report.FirstBad.Reason != Frame {
				t.Errorf("%d bytes of %q, then an entry: %v, %v", n, fill, report.FirstBad, err)
			}
		}
	}
}

func TestReadError(t *testing.T) {
	disk := errors.New("input/output error")
	good := read(t, "good.jsonl")
	for _, r := range []io.Reader{
		iotest.ErrReader(disk),
		io.MultiReader(bytes.NewReader(good), iotest.ErrReader(disk)),
		io.MultiReader(bytes.NewReader(good), strings.NewReader("rubbish\n"), iotest.ErrReader(disk)),
	} {
		if report, err := Verify(r); !errors.Is(err, disk) || report.OK {
			t.Errorf("%+v, %v", report, err)
		}
	}
}

// Case 26: a ledger has a million entries; the memory for its verification must not grow with its bytes.
func TestMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a million entries")
	}
	pr, pw := io.Pipe()
	const n = 1_000_000
	most := uint64(0) // live heap in bytes
	go func() {
		w := bufio.NewWriterSize(pw, 1<<20)
		var prev Hash
		for i := range n {
			e := Entry{Seq: uint64(i + 1), Kind: "x", Data: json.RawMessage(`{"n":1}`)}
			if i == 0 {
				e.Kind, e.Data = KindGenesis, json.RawMessage(`{"format":1,"origin":"000102030405060708090a0b0c0d0e0f","host":"castle"}`)
			}
			if i%200_000 == 100_000 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
			line, h, err := Append(prev, e)
			if err == nil {
				_, err = w.Write(line)
			}
			if err != nil {
				pw.CloseWithError(err)
				return
			}
			prev = h
		}
		pw.CloseWithError(w.Flush())
	}()
	if report, err := Verify(pr); err != nil || !report.OK || report.Entries != n {
		t.Fatalf("%+v, %v", report, err)
	}
	if most == 0 || most > 16<<20 {
		t.Errorf("%d bytes of heap for %d entries", most, n)
	}
}

func TestScanContinues(t *testing.T) {
	good := read(t, "good.jsonl")
	split := bytes.IndexByte(good, '\n') + 1
	var head Head
	for e, err := range Scan(bytes.NewReader(good[:split]), Head{}) {
		if err != nil {
			t.Fatal(err)
		}
		head = Head{Seq: e.Seq, Hash: e.Hash}
	}
	n := 0
	for e, err := range Scan(bytes.NewReader(good[split:]), head) {
		if err != nil || e.Prev != head.Hash {
			t.Fatal(e, err)
		}
		head, n = Head{Seq: e.Seq, Hash: e.Hash}, n+1
		if n == 2 {
			break // the consumer may stop
		}
	}
	if head.Seq != 3 {
		t.Errorf("stopped at %d", head.Seq)
	}
}

// TestEndlessTail checks that an endless file is recognized after as many bytes as a crash can leave.
func TestEndlessTail(t *testing.T) {
	good := read(t, "good.jsonl")
	endless := io.MultiReader(bytes.NewReader(good), zeros{})
	r, err := Verify(endless)
	if err != nil || r.OK || r.FirstBad.Reason != Frame || !strings.Contains(r.FirstBad.Detail, "64 MiB") || r.FirstBad.Tail {
		t.Errorf("%+v %v", r.FirstBad, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
