package guestwire

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func frame(kind Kind, stream uint32, payload string) string {
	var b bytes.Buffer
	if err := NewWriter(&b).Write(kind, stream, []byte(payload)); err != nil {
		panic(err)
	}
	return b.String()
}

// TestFrames checks that frames arrive as they were written, however the bytes are cut.
func TestFrames(t *testing.T) {
	large := strings.Repeat("x", MaxPayload)
	text := frame(KindHello, 0, "h") + frame(KindData, 1, large) + frame(KindReply, 1<<32-1, "")
	for name, in := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text))} {
		r := NewReader(in)
		for _, want := range []Frame{{KindHello, 0, []byte("h")}, {KindData, 1, []byte(large)}, {KindReply, 1<<32 - 1, nil}} {
			got, err := r.Next()
			if err != nil || got.Kind != want.Kind || got.Stream != want.Stream || !bytes.Equal(got.Payload, want.Payload) {
				t.Errorf("%s: %c %d, %d bytes, %v", name, got.Kind, got.Stream, len(got.Payload), err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: the end is %v", name, err)
		}
	}
	if err := NewWriter(io.Discard).Write(KindData, 1, make([]byte, MaxPayload), []byte("1")); err == nil {
		t.Error("a frame that is too large was written")
	}
}

// TestFramesRefused checks that a malformed header is refused before its payload is read.
func TestFramesRefused(t *testing.T) {
	for name, text := range map[string]string{
		"kind":           "Z\x00\x00\x00\x01\x00\x00\x00\x00",
		"length":         "D\x00\x00\x00\x01\x00\x01\x00\x01",
		"all":            "D\x00\x00\x00\x01\xff\xff\xff\xff",
		"hello 1":        "H\x00\x00\x00\x01\x00\x00\x00\x00",
		"data of no one": "D\x00\x00\x00\x00\x00\x00\x00\x00",
	} {
		if _, err := NewReader(strings.NewReader(text)).Next(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, cut := range []string{"D", "D\x00\x00\x00\x01\x00\x00\x00\x02x"} {
		if _, err := NewReader(strings.NewReader(cut)).Next(); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: %v", cut, err)
		}
	}
}

// TestSkipTo checks that the answer of an agent is found behind the rest of an older session, within a limit.
func TestSkipTo(t *testing.T) {
	mark := [MarkerSize]byte([]byte(rand.Text() + rand.Text())[:MarkerSize])
	for _, before := range []int{0, 1, MarkerSize - 1, MaxPayload, 3 * MaxPayload} {
		text := strings.Repeat(string(mark[:1]), before) + string(mark[:]) + frame(KindHello, 0, "x")
		r := NewReader(iotest.HalfReader(strings.NewReader(text)))
		if err := r.SkipTo(mark, 4*MaxPayload); err != nil {
			t.Fatal(before, err)
		}
		if f, err := r.Next(); err != nil || string(f.Payload) != "x" {
			t.Errorf("after %d bytes: %v", before, err)
		}
	}
	if err := NewReader(zeros{}).SkipTo(mark, MaxPayload); !errors.Is(err, ErrProtocol) {
		t.Error("endless noise:", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestResync checks that a marker is found wherever it is cut, and that what follows it is kept.
func TestResync(t *testing.T) {
	marker := [MarkerSize]byte([]byte(rand.Text() + rand.Text())[:MarkerSize])
	text := frame(KindData, 7, "abc")[:11] + string(marker[:]) + frame(KindHello, 0, "new")
	for name, in := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)),
		"halves": iotest.HalfReader(strings.NewReader(text))} {
		r := NewResyncer(in)
		r.Expect(marker)
		if _, err := NewReader(r).Next(); err != ErrResync {
			if _, err = io.Copy(io.Discard, r); err != ErrResync {
				t.Fatalf("%s: %v", name, err)
			}
		}
		r.Expect([MarkerSize]byte{1})
		if f, err := NewReader(r).Next(); err != nil || string(f.Payload) != "new" {
			t.Errorf("%s: %q, %v", name, f.Payload, err)
		}
	}
	r := NewResyncer(strings.NewReader(string(marker[:])))
	if b, err := io.ReadAll(r); err != nil || len(b) != MarkerSize {
		t.Error("a marker that is not expected was found", err)
	}
}

// samples has a message of each type with every field set.
func samples() []Message {
	exit := Exit{1, 9, true}
	job := Job{"j1", []string{"a", "\xff"}, 7, 8, true, exit, 9}
	net := Interface{"eth0", "52:54:00:00:00:01", []string{"192.0.2.7/24"}, "192.0.2.1"}
	return []Message{
		&Hello{1, [MarkerSize]byte{1}, [MarkerSize]byte{2}, true}, &Welcome{1, "amd64", true}, &Empty{},
		&Failure{"invalid", "m", "h"}, &Command{[]string{"a", ""}, []string{"A=b"}, "/", 1, 2, 3, true, true, 4, 5}, &exit,
		&JobName{"j1"}, &job, &JobList{[]Job{job, job}}, &Tail{"j1", 3}, &Kill{"j1", 9}, &File{"/x", 1, 2, 3, 4, true},
		&FileInfo{"x", 1, 2, 3, 4, 5, "t"}, &Edit{"/x", 1, 2, true}, &Edited{3}, &HostKey{"a", "b", "c", "d"}, &net,
		&Renewal{[]byte("s"), 1, "m", "h", []HostKey{{"a", "b", "c", "d"}}, []Interface{net}, true},
		&Identity{"h", "m", 1, "k", []string{"x"}, []Interface{net}, true}, &Number{9}, &Size{24, 80},
	}
}

// TestMessages checks that each message is read as it was written, and refused if a byte is missing or added.
func TestMessages(t *testing.T) {
	for _, m := range samples() {
		b := Marshal(nil, m)
		empty := func() Message { return reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message) }
		got := empty()
		if err := Unmarshal(b, got); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v is read as %+v, %v", m, got, err)
		}
		if err := Unmarshal(append(b, 0), empty()); !errors.Is(err, ErrProtocol) {
			t.Errorf("%T with another byte: %v", m, err)
		}
		for n := range b {
			if err := Unmarshal(b[:n], empty()); !errors.Is(err, ErrProtocol) {
				t.Errorf("%T of %d bytes: %v", m, n, err)
			}
		}
	}
}

// TestNoAllocationByClaim checks that a claimed length reserves no memory.
func TestNoAllocationByClaim(t *testing.T) {
	claim := []byte("\xff\xff\xff\xff")
	if n := testing.AllocsPerRun(10, func() {
		var j JobList
		var s string
		if Unmarshal(claim, &j) == nil {
			t.Error("a list without entries was read")
		}
		c := &Codec{buf: claim, reading: true}
		if c.Raw(&s); c.err == nil {
			t.Error("a text without bytes was read")
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
	if err := Unmarshal([]byte("\x00\x00\x00\x01\xff"), &JobName{}); !errors.Is(err, ErrProtocol) {
		t.Error("a text that is not UTF-8:", err)
	}
	if err := Unmarshal([]byte("\x00\x00\x00\x01\x00\x00\x00\x01\x02"), &Exit{}); !errors.Is(err, ErrProtocol) {
		t.Error("a truth value of 2:", err)
	}
}

// TestFlow checks that a sender waits for credit, and that a receiver refuses what exceeds it.
func TestFlow(t *testing.T) {
	in, out := NewInbox(), NewAllowance()
	const total = 3*Window + 12345
	sent := bytes.Repeat([]byte("0123456789"), total/10+1)[:total]
	done := make(chan error)
	go func() {
		err := out.Send(sent, func(b []byte) error { return in.Push(b) })
		done <- errors.Join(err, in.Push(nil))
	}()
	var got bytes.Buffer
	if err := in.CopyTo(&got, out.Add); err != nil || !bytes.Equal(got.Bytes(), sent) {
		t.Errorf("%d bytes of %d, %v", got.Len(), total, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := in.Push([]byte("x")); !errors.Is(err, ErrProtocol) {
		t.Error("data after the end:", err)
	}
	full := NewInbox()
	if err := errors.Join(full.Push(make([]byte, Window-1)), full.Push([]byte("x"))); err != nil {
		t.Error(err)
	}
	if err := full.Push([]byte("x")); !errors.Is(err, ErrProtocol) {
		t.Error("more than the window:", err)
	}
	for _, n := range []uint32{0, 1, Window, 1<<32 - 1} {
		if err := NewAllowance().Add(n); !errors.Is(err, ErrProtocol) {
			t.Errorf("credit of %d: %v", n, err)
		}
	}
}

// TestFlowEnds checks that both sides of a channel stop waiting when the session ends.
func TestFlowEnds(t *testing.T) {
	gone := errors.New("gone")
	in, out := NewInbox(), NewAllowance()
	done := make(chan error, 2)
	go func() { done <- in.CopyTo(io.Discard, out.Add) }()
	go func() { done <- out.Send(make([]byte, 2*Window), func([]byte) error { return nil }) }()
	in.Close(gone)
	out.Close(gone)
	for range 2 {
		if err := <-done; err != gone {
			t.Error(err)
		}
	}
}

// FuzzFrame checks that any bytes are read as frames that have just this written form, or refused.
func FuzzFrame(f *testing.F) {
	f.Add([]byte(frame(KindHello, 0, "h") + frame(KindData, 1, "\x01x") + "D\x00"))
	f.Add([]byte("D\x00\x00\x00\x01\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(iotest.HalfReader(bytes.NewReader(data)))
		var again bytes.Buffer
		w := NewWriter(&again)
		for {
			fr, err := r.Next()
			if err != nil {
				break
			}
			w.Write(fr.Kind, fr.Stream, fr.Payload)
			ParseData(fr.Payload)
			ParseCredit(fr.Payload)
		}
		if !bytes.HasPrefix(data, again.Bytes()) {
			t.Errorf("%q is read as %q", data, again.Bytes())
		}
	})
}

// FuzzMessage checks that a message that is read has just this written form.
func FuzzMessage(f *testing.F) {
	for i, m := range samples() {
		f.Add(i, Marshal(nil, m))
	}
	f.Fuzz(func(t *testing.T, i int, data []byte) {
		all := samples()
		m := reflect.New(reflect.TypeOf(all[uint(i)%uint(len(all))]).Elem()).Interface().(Message)
		if Unmarshal(data, m) == nil && !bytes.Equal(Marshal(nil, m), data) {
			t.Errorf("%x is read as %+v", data, m)
		}
		ParseRequest(data)
		ParseReply(data, m)
	})
}

// TestCommandFault checks which commands neither side accepts.
func TestCommandFault(t *testing.T) {
	if got := (&Command{Argv: []string{"ls", ""}, Env: []string{"_A1=x=y", "B="}, Dir: "/x"}).Fault(); got != "" {
		t.Error(got)
	}
	for _, c := range []Command{{}, {Argv: []string{""}}, {Argv: []string{"a\x00"}}, {Argv: []string{"a"}, Dir: "x"},
		{Argv: []string{"a"}, Dir: "/\x00"}, {Argv: []string{"a"}, Millis: -1}, {Argv: []string{"a"}, Rows: 1 << 20},
		{Argv: []string{"a"}, Env: []string{"1=x"}}, {Argv: []string{"a"}, Env: []string{"A"}}, {Argv: []string{"a"}, Env: []string{"=x"}},
		{Argv: []string{"a"}, Env: []string{"A-B=x"}}, {Argv: []string{"a"}, Env: []string{"A=\x00"}}} {
		if c.Fault() == "" {
			t.Errorf("%+v is accepted", c)
		}
	}
}
