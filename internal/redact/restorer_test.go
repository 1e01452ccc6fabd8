package redact

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// restoreInPieces restores in, written in pieces of the given sizes, and checks that less than maxToken bytes are held
// back.
func restoreInPieces(t testing.TB, table *Table, in string, cuts []byte) (string, *Restorer) {
	var out bytes.Buffer
	r := table.Restorer(&out)
	for i := 0; in != ""; i++ {
		n := min(len(in), 1+int(cuts[i%len(cuts)]))
		if _, err := r.Write([]byte(in[:n])); err != nil {
			t.Fatal(err)
		}
		if len(r.held) >= maxToken {
			t.Fatalf("%d bytes are held", len(r.held))
		}
		in = in[n:]
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String(), r
}

// answers are model outputs with tokens that are whole, cut, nested, escaped or foreign, and outputs without tokens.
var answers = []string{
	"", "[", "[REDACTED", "[REDACTED_", "[REDACTED__", "a [REDACTED_PASSWORD_1] b", "[REDACTED_PASSWORD_1][REDACTED_PASSWORD_2][REDACTED_IPV4_1]",
	"[REDACTED_[REDACTED_PASSWORD_1]", "[REDACTED__PASSWORD_1] [REDACTED_PASSWORD_X] [REDACTED_NONE_7]", "[[REDACTED_PASSWORD_1", "[REDACTED_ and then text]",
	"[REDACTED_" + strings.Repeat("A", 80) + "_1] [REDACTED_PASSWORD_1]", "[REDACTED_\n[REDACTED_IPV4_1]\xff\x00", strings.Repeat("[REDACTED_PASSWORD_1]", 40),
}

func answered(t testing.TB) *Table {
	table := ruled(t).NewTable()
	out, _ := table.Text("password=hunter2hunter from 10.1.2.3 password=Xk29fLq81mZp [REDACTED_")
	if want := "password=[REDACTED_PASSWORD_1] from [REDACTED_IPV4_1] password=[REDACTED_PASSWORD_2] [REDACTED__"; out != want {
		t.Fatalf("got %s", out)
	}
	return table
}

// TestRestorer checks that the result equals Restore of the whole text, however it is split.
func TestRestorer(t *testing.T) {
	table := answered(t)
	for _, in := range answers {
		want := table.Restore(in)
		for _, cuts := range [][]byte{{0}, {1}, {2, 0, 6}, {9}, {10}, {62}, {63}, {255}} {
			if got, _ := restoreInPieces(t, table, in, cuts); got != want {
				t.Errorf("%q, cuts %v\n got %q\nwant %q", in, cuts, got, want)
			}
		}
	}
	_, r := restoreInPieces(t, table, answers[6]+answers[8]+answers[10], []byte{4})
	if r.Given() != 3 || r.Left() != 2 {
		t.Errorf("%d given, %d left, want 3 and 2", r.Given(), r.Left())
	}
	if s := fmt.Sprintf("%v %+v %#v", r, r, r); strings.Contains(s, "REDACTED") {
		t.Error(s)
	}
}

// TestRestorerIsPrompt checks that text that cannot be a token is written at once, and that the text of a token is
// written in separate pieces.
func TestRestorerIsPrompt(t *testing.T) {
	table := answered(t)
	long := strings.Repeat("z", 60<<10)
	token := table.tokenFor("LONG", []byte(long))
	var out bytes.Buffer
	r := table.Restorer(&out)
	for _, s := range []struct{ in, out string }{{"hello [RED", "hello "}, {"DACTED_P", "[REDDACTED_P"}, {"] [REDACTED_PASSWORD_1", "] "}, {"]", "hunter2hunter"}} {
		out.Reset()
		if r.Write([]byte(s.in)); out.String() != s.out {
			t.Errorf("%q gave %q, want %q", s.in, out.String(), s.out)
		}
	}
	most, total := 0, 0
	r = table.Restorer(writing(func(b []byte) { most, total = max(most, len(b)), total+len(b) }))
	r.Write([]byte(strings.Repeat(token, 300)))
	r.Close()
	if most > piece+len(long) || total != 300*len(long) {
		t.Errorf("%d bytes, in pieces of up to %d", total, most)
	}
}

type writing func([]byte)

func (w writing) Write(b []byte) (int, error) { w(b); return len(b), nil }

// TestRestorerWhileRedacting checks that a Restorer whose reader is blocked does not block other users of the table.
func TestRestorerWhileRedacting(t *testing.T) {
	table := answered(t)
	r := table.Restorer(writing(func([]byte) { table.Text("password=another1Secret") }))
	if _, err := r.Write([]byte("[REDACTED_PASSWORD_1]")); err != nil {
		t.Fatal(err)
	}
}

func TestRestorerErrors(t *testing.T) {
	r := answered(t).Restorer(&broken{})
	if _, err := r.Write([]byte("text ")); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("write: %v", err)
	}
	if err := r.Close(); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("close: %v", err)
	}
	r = answered(t).Restorer(io.Discard)
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if _, err := r.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after Close: %v", err)
	}
}

type broken struct{}

func (*broken) Write([]byte) (int, error) { return 0, io.ErrShortBuffer }

func FuzzRestorer(f *testing.F) {
	for i, in := range append(slices.Clone(answers), `[REDACTED\_PASSWORD\_1] %5BREDACTED_IPV4_1%5D`, "\n[redacted_ipv4_1][REDACTED_JWT_7]") {
		f.Add(in, []byte{byte(i), byte(3 * i)})
	}
	table := answered(f)
	f.Fuzz(func(t *testing.T, in string, cuts []byte) {
		if len(cuts) == 0 {
			return
		}
		want := table.Restore(in)
		got, r := restoreInPieces(t, table, in, cuts)
		if got != want {
			t.Fatalf("%q, cuts %v\n got %q\nwant %q", in, cuts, got, want)
		}
		if _, whole := restoreInPieces(t, table, in, []byte{255}); whole.Left() != r.Left() || !slices.Equal(whole.Missed(), r.Missed()) {
			t.Fatalf("%q, cuts %v: missed %d %v, of the whole %d %v", in, cuts, r.Left(), r.Missed(), whole.Left(), whole.Missed())
		}
	})
}

// TestFindingSaysWhere checks that each find has its line and its token, even if the text comes byte by byte.
func TestFindingSaysWhere(t *testing.T) {
	const in = "one\nfrom 10.1.2.3\n\nA=b\n-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----\nfrom 10.1.2.3 to 10.1.2.4\n"
	var seen []string
	w := ruled(t).NewTable().Writer(io.Discard)
	w.Tell(func(f Finding) { seen = append(seen, fmt.Sprint(f.Line, f.Token)) })
	for _, c := range []byte(in) {
		w.Write([]byte{c})
	}
	w.Close()
	want := "[2[REDACTED_IPV4_1] 5[REDACTED_PRIVATE_KEY_1] 8[REDACTED_IPV4_1] 8[REDACTED_IPV4_2]]"
	if got := strings.ReplaceAll(fmt.Sprint(seen), " [", "["); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
