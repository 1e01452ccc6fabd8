package redact

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"bailey/internal/ktest"
)

// learned returns a table whose secrets overlap each other, the marks and the key blocks.
func learned() *Table {
	t := NewTable()
	t.index = learnedIndex() // shared; must not be changed
	return t
}

var learnedIndex = sync.OnceValue(func() index {
	t := NewTable()
	for _, s := range []string{
		"abab", "babc", "abc", "cc", "#", "hunter2hunter2", "hunter2hunterX", "TED_x", "[REDACTED_K", "EGIN PRIV", "é\"\n/ü",
		rep("ab", 40), "-----END", "QQQQQQQQ",
	} {
		t.Learn("K", s)
	}
	return t.index
})

// chunked writes in through a Writer, in pieces whose sizes come from cuts in turn.
func chunked(tb testing.TB, table *Table, in string, cuts []byte) (string, int) {
	tb.Helper()
	var out bytes.Buffer
	w := table.Writer(&out)
	for i := 0; in != ""; i++ {
		n := 1
		if len(cuts) > 0 {
			n = int(cuts[i%len(cuts)])
		}
		n = min(n, len(in))
		if m, err := w.Write([]byte(in[:n])); m != n || err != nil {
			tb.Fatalf("Write of %d: %d, %v", n, m, err)
		}
		in = in[n:]
		if n == 0 && len(bytes.Trim(cuts, "\x00")) == 0 {
			cuts = nil
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.String(), w.Count()
}

// same checks that a split text gives the same result as the whole text, and that the result can be restored.
func same(tb testing.TB, in string, cuts []byte) {
	tb.Helper()
	whole, split := learned(), learned()
	want, n := whole.Text(in)
	got, m := chunked(tb, split, in, cuts)
	if got != want || n != m {
		tb.Fatalf("in %q, cuts %v\nwhole %q, %d\nsplit %q, %d", in, cuts, want, n, got, m)
	}
	if back := whole.Restore(want); back != in {
		tb.Fatalf("in %q\nout %q\nback %q", in, want, back)
	}
}

// atoms are texts that are hard to split correctly. The tests join them at random.
var atoms = []string{
	"a", "b", "ab", "c", "abc", "#", "hunter2", "hunter2hunter", "X", "[", "[RED", "ACTED_", "[REDACTED_", "_", "K_1]", "TED_", "x",
	"-", "--", "-----", "-----BEGIN", " PRIVATE", " KEY", "-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----\n",
	"-----END", "-----END PRIVATE KEY-----", "-----BEGIN CERTIFICATE-----", "\n", `\n`, `\`, "\r\n", " ", ":", "\"", ",", "=", "QQQQ",
	"MIIEpAIBAAKCAQEA", "aHVudGVyMmh1bnRlcj", "Jo", "68756e74657232", "c4OpIgov", "%C3%A9%22%0A/", "%C3%BC", `é\"\n/`, "ü",
	rep("Q", 31), rep("z", 64), rep("z ", 130), rep("ab", 39), rep(rep("M", 63)+"\n", 40),
}

func TestSplit(t *testing.T) {
	ktest.Long(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var in strings.Builder
		for range r.IntN(30) {
			in.WriteString(atoms[r.IntN(len(atoms))])
		}
		cuts := make([]byte, 1+r.IntN(8))
		for i := range cuts {
			cuts[i] = byte(1 + r.IntN(1<<r.IntN(8)))
		}
		same(t, in.String(), cuts)
		same(t, in.String(), []byte{1})
	}
}

// TestSplitHuge checks that a block beyond the bound is cut at the same places however it is split.
func TestSplitHuge(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	body := []byte(rep(rep("M", 63)+"\n", 3*maxBlock/64))
	for range 300 {
		body[r.IntN(len(body))] = "\n-= \\n:Q#"[r.IntN(9)]
	}
	in := "abab-----BEGIN PRIVATE KEY-----\n" + string(body) + "babc -----END PRIVATE KEY-----hunter2"
	same(t, in, []byte{255})
	same(t, in, []byte{3, 200, 1})
}

func FuzzSplit(f *testing.F) {
	f.Add("ababc hunter2hunter2 [REDACTED_K_1]", []byte{1})
	f.Add("-----BEGIN PRIVATE KEY-----\n"+rep("A", 64)+"\n-----END PRIVATE KEY-----\n", []byte{3, 5})
	f.Add("-----BEGIN RSA PRIVATE KEY-----\\nMIIEpAIBAAKCAQEA", []byte{7})
	f.Add("[REDACTED_TED_x aHVudGVyMmh1bnRlcjI= 68756e7465723268756e74657232", []byte{2, 0, 9})
	f.Fuzz(func(t *testing.T, in string, cuts []byte) {
		if len(in) < 1<<16 {
			same(t, in, cuts)
		}
	})
}

// TestHoldsBack checks that text that cannot begin a find is written at once, and that other text is held back no
// longer than necessary.
func TestHoldsBack(t *testing.T) {
	table := NewTable()
	table.Learn("K", "hunter2hunter2")
	var out bytes.Buffer
	w := table.Writer(&out)
	for _, step := range []struct{ in, want string }{
		{"hello ", "hello "},
		{"hunter", ""},
		{"s ", "hunters "},
		{"hunter2hunter", ""},
		{"2", "[REDACTED_K_1]"},
		{" [RED", " "},
		{"ACTED_", "[REDACTED__"},
		{"---", ""},
		{"\n", "---\n"},
		{"-----BEGIN PRIVATE KEY-----\n", ""},
		{rep("A", 64) + "\n-----END PRIVATE KEY----", ""},
		{"-", "[REDACTED_PRIVATE_KEY_1]"},
		{"h", ""},
	} {
		out.Reset()
		w.Write([]byte(step.in))
		if out.String() != step.want {
			t.Errorf("after %q went out %q, want %q", step.in, out.String(), step.want)
		}
	}
	out.Reset()
	if err := w.Close(); err != nil || out.String() != "h" || w.Count() != 2 {
		t.Errorf("Close: %v, %q, %d", err, out.String(), w.Count())
	}
	if err := w.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if n, err := w.Write([]byte("x")); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write after Close: %d, %v", n, err)
	}
}

// TestLearnMeanwhile checks that a secret is hidden from the moment it is learned, even if its beginning is held back
// or already written.
func TestLearnMeanwhile(t *testing.T) {
	table := NewTable()
	table.Learn("K", "first-secret")
	var out bytes.Buffer
	w := table.Writer(&out)
	w.Write([]byte("x first-"))
	table.Learn("K", "t-lesson")
	w.Write([]byte("lesson second"))
	w.Close()
	if got := out.String(); got != "x firs[REDACTED_K_1] second" {
		t.Error(got)
	}
}

// TestLearnWhileHeld checks the same for text in an open block that turns out not to be a key.
func TestLearnWhileHeld(t *testing.T) {
	table := NewTable()
	var out bytes.Buffer
	w := table.Writer(&out)
	w.Write([]byte("-----BEGIN PRIVATE KEY----- and a late-secret "))
	table.Learn("K", "late-secret")
	w.Close()
	if got := out.String(); got != "-----BEGIN PRIVATE KEY----- and a [REDACTED_K_1] " {
		t.Error(got)
	}
}

// TestSecretIntoBlock checks that a secret that overlaps the beginning of a block is hidden, and the rest of the block
// too.
func TestSecretIntoBlock(t *testing.T) {
	in := "pre-----BEGIN PRIVATE KEY-----\n" + rep("A", 40) + " bb"
	table := NewTable()
	table.Learn("K", in)
	var out bytes.Buffer
	w := table.Writer(&out)
	for _, s := range []string{in, " ", "x\n" + rep("C", 40), "\n-----END PRIVATE KEY-----."} {
		w.Write([]byte(s))
	}
	w.Close()
	if got := out.String(); got != "[REDACTED_K_1][REDACTED_PRIVATE_KEY_1]." {
		t.Error(got)
	}
}

type failing struct {
	after int
	short bool
}

var errDisk = errors.New("no space")

func (f *failing) Write(p []byte) (int, error) {
	if f.after--; f.after >= 0 {
		return len(p), nil
	}
	if f.short {
		return len(p) - 1, nil
	}
	return 0, errDisk
}

func TestWriterError(t *testing.T) {
	for _, short := range []bool{false, true} {
		want := errDisk
		if short {
			want = io.ErrShortWrite
		}
		w := NewTable().Writer(&failing{after: 1, short: short})
		if n, err := w.Write([]byte("one")); n != 3 || err != nil {
			t.Errorf("first: %d, %v", n, err)
		}
		for range 2 {
			if n, err := w.Write([]byte("two")); n != 0 || !errors.Is(err, want) {
				t.Errorf("then: %d, %v", n, err)
			}
		}
		if err := w.Close(); !errors.Is(err, want) {
			t.Errorf("Close: %v", err)
		}
	}
}
