package guestclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/guestwire"
)

// short makes a session impatient.
var short = Config{HelloTime: 100 * time.Millisecond, OpTime: 100 * time.Millisecond, Grace: 100 * time.Millisecond}

// hostile begins a session with an agent that answers the hello and then does what it wants. in reads what the host
// sends.
func hostile(t testing.TB, cfg Config, agent func(conn net.Conn, w *guestwire.Writer, in *guestwire.Reader)) *Session {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	go func() {
		in, w := guestwire.NewReader(theirs), guestwire.NewWriter(theirs)
		var hello guestwire.Hello
		f, err := in.Next()
		if err != nil || guestwire.Unmarshal(f.Payload, &hello) != nil || w.Raw(hello.Nonce[:]) != nil {
			return
		}
		w.Write(guestwire.KindHello, 0, guestwire.Marshal(nil, &guestwire.Welcome{Version: guestwire.Version, Arch: "amd64"}))
		agent(theirs, w, in)
	}()
	s, err := Dial(context.Background(), ours, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestHostileAgent checks that the first violation of the protocol ends the session, with an error for each operation.
func TestHostileAgent(t *testing.T) {
	data := func(c guestwire.Channel, n int) []byte { return append([]byte{byte(c)}, make([]byte, n)...) }
	good := guestwire.ReplyPayload(&guestwire.Exit{}, nil)
	type w = *guestwire.Writer
	for name, attack := range map[string]func(w){
		"unknown kind":  func(w w) { w.Raw([]byte("Z\x00\x00\x00\x01\x00\x00\x00\x00")) },
		"long length":   func(w w) { w.Raw([]byte("D\x00\x00\x00\x01\xff\xff\xff\xff")) },
		"a request":     func(w w) { w.Write(guestwire.KindRequest, 1, []byte{1}) },
		"another hello": func(w w) { w.Write(guestwire.KindHello, 0) },
		"a signal":      func(w w) { w.Write(guestwire.KindSignal, 1, []byte{0, 0, 0, 9}) },
		"a stream":      func(w w) { w.Write(guestwire.KindReply, 2, good) },
		"two replies":   func(w w) { w.Write(guestwire.KindReply, 1, []byte{9}); w.Write(guestwire.KindReply, 1, good) },
		"no outcome":    func(w w) { w.Write(guestwire.KindReply, 1, []byte{7}) },
		"empty reply":   func(w w) { w.Write(guestwire.KindReply, 1) },
		"short reply":   func(w w) { w.Write(guestwire.KindReply, 1, good[:3]) },
		"no channel":    func(w w) { w.Write(guestwire.KindData, 1) },
		"input":         func(w w) { w.Write(guestwire.KindData, 1, data(guestwire.Stdin, 1)) },
		"channel 9":     func(w w) { w.Write(guestwire.KindData, 1, data(9, 1)) },
		"after the end": func(w w) { w.Write(guestwire.KindData, 1, data(1, 0)); w.Write(guestwire.KindData, 1, data(1, 1)) },
		"credit": func(w w) {
			w.Write(guestwire.KindCredit, 1, guestwire.CreditPayload(guestwire.Stdin, guestwire.Window+1))
		},
		"no credit":      func(w w) { w.Write(guestwire.KindCredit, 1, guestwire.CreditPayload(guestwire.Stdin, 0)) },
		"other credit":   func(w w) { w.Write(guestwire.KindCredit, 1, guestwire.CreditPayload(guestwire.Stdout, 1)) },
		"short credit":   func(w w) { w.Write(guestwire.KindCredit, 1, []byte{0, 1}) },
		"half a frame":   func(w w) { w.Raw([]byte("D\x00\x00\x00\x01\x00\x00\x00\x09x")) },
		"more than owed": func(w w) { floodStdout(w, 3*guestwire.Window) }, // one is with the writer, one waits
	} {
		t.Run(name, func(t *testing.T) {
			block := make(chan struct{})
			s := hostile(t, Config{OpTime: patience, Grace: patience}, func(conn net.Conn, w *guestwire.Writer, in *guestwire.Reader) {
				in.Next()
				attack(w)
				if name == "half a frame" {
					conn.Close()
				}
				io.Copy(io.Discard, conn)
			})
			c := Command{Argv: []string{"x"}, Stdin: strings.NewReader(""), Stdout: blocked{block}}
			go func() { <-s.Done(); close(block) }()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := s.Exec(ctx, c); !errors.Is(err, bailey.Unavailable) {
				t.Error(err)
			}
			if _, err := s.Stat(t.Context(), "/"); !errors.Is(err, bailey.Unavailable) || s.Err() == nil {
				t.Error("the session goes on:", err)
			}
			if err := s.Err(); !errors.Is(err, guestwire.ErrProtocol) && name != "half a frame" {
				t.Error("it ended for another reason:", err)
			}
		})
	}
}

const patience = time.Minute // for waits that end much earlier on an idle machine

// blocked is a writer that waits.
type blocked struct{ until chan struct{} }

func (b blocked) Write(p []byte) (int, error) { <-b.until; return len(p), nil }

func floodStdout(w *guestwire.Writer, n int) {
	for ; n > 0; n -= 1 << 15 {
		if w.Write(guestwire.KindData, 1, append([]byte{byte(guestwire.Stdout)}, make([]byte, 1<<15)...)) != nil {
			return
		}
	}
}

// TestSilentAgent checks that no operation waits for longer than its time for an agent that does not answer, read or
// stop.
func TestSilentAgent(t *testing.T) {
	silent := func(conn net.Conn, _ *guestwire.Writer, _ *guestwire.Reader) { io.Copy(io.Discard, conn) }
	s := hostile(t, short, silent)
	if _, err := s.Stat(t.Context(), "/"); !errors.Is(err, bailey.Unavailable) {
		t.Error(err)
	}
	if s.Err() == nil {
		t.Error("an agent that does not end a cancelled operation keeps its session")
	}
	s = hostile(t, short, silent)
	if _, err := s.Exec(t.Context(), Command{Argv: []string{"x"}, Timeout: time.Millisecond}); !errors.Is(err, bailey.Unavailable) {
		t.Error(err)
	}
	s = hostile(t, short, silent)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Exec(ctx, Command{Argv: []string{"x"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	s = hostile(t, short, func(net.Conn, *guestwire.Writer, *guestwire.Reader) {}) // it never reads
	if _, err := s.Exec(t.Context(), Command{Argv: []string{"x"}}); !errors.Is(err, bailey.Unavailable) {
		t.Error(err)
	}
}

// TestHello checks that a session does not begin with an agent that is silent, endless, foreign or of another version.
func TestHello(t *testing.T) {
	answer := func(version uint32) func(net.Conn) {
		return func(conn net.Conn) {
			var hello guestwire.Hello
			f, _ := guestwire.NewReader(conn).Next()
			guestwire.Unmarshal(f.Payload, &hello)
			w := guestwire.NewWriter(conn)
			w.Raw(hello.Nonce[:])
			w.Write(guestwire.KindHello, 0, guestwire.Marshal(nil, &guestwire.Welcome{Version: version}))
		}
	}
	for name, agent := range map[string]func(net.Conn){
		"silent": func(conn net.Conn) { io.Copy(io.Discard, conn) },
		"deaf":   func(net.Conn) {},
		"gone":   func(conn net.Conn) { conn.Close() },
		"endless": func(conn net.Conn) {
			go io.Copy(io.Discard, conn)
			for noise := make([]byte, 1<<16); ; {
				if _, err := conn.Write(noise); err != nil {
					return
				}
			}
		},
		"version": answer(guestwire.Version + 1),
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			go agent(theirs)
			cfg := short
			if name == "endless" || name == "version" {
				cfg.HelloTime = patience
			}
			if _, err := Dial(t.Context(), ours, cfg); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
				t.Error(err)
			}
		})
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, ours, Config{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestEndlessAnswers checks that an agent cannot fill the host with the answer to an operation.
func TestEndlessAnswers(t *testing.T) {
	endless := func(conn net.Conn, w *guestwire.Writer, in *guestwire.Reader) {
		in.Next()
		go io.Copy(io.Discard, conn)
		for chunk := append([]byte{byte(guestwire.Stdout)}, bytes.Repeat([]byte("x"), 1<<15)...); ; {
			if w.Write(guestwire.KindData, 1, chunk) != nil {
				return // it sends without credit in the end
			}
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, do := range map[string]func(s *Session) error{
		"read":   func(s *Session) error { _, err := s.ReadFile(t.Context(), "/x", 1000); return err },
		"list":   func(s *Session) error { _, err := s.List(t.Context(), "/x"); return err },
		"output": func(s *Session) error { _, _, err := s.Output(t.Context(), "job-1", 100); return err },
		"exec": func(s *Session) error {
			_, err := s.Exec(t.Context(), Command{Argv: []string{"x"}, MaxOutput: 10})
			return err
		},
	} {
		s := hostile(t, short, endless)
		if err := do(s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("%d bytes more are in use", grown)
	}
}

// TestUntrustedTexts checks that errors show no control characters of the guest, and that a guest chooses no kind that
// speaks for the gate.
func TestUntrustedTexts(t *testing.T) {
	err := untrustedError(&guestwire.Failure{Kind: "denied", Message: "a\x1b[2Jb\u202e" + strings.Repeat("é", maxText), Hint: "c\nd"})
	if text := err.Error() + bailey.HintOf(err); strings.ContainsAny(text, "\x1b\n\u202e") || len(text) > maxText+100 {
		t.Errorf("%q", text)
	}
	if !errors.Is(err, bailey.Internal) {
		t.Error(err)
	}
	if err := untrustedError(&guestwire.Failure{Kind: "not found"}); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
}

// TestLists checks that a listed directory has only entries of that directory.
func TestLists(t *testing.T) {
	record := func(name string) []byte {
		b := guestwire.Marshal(nil, &guestwire.FileInfo{Name: name})
		return append([]byte{0, 0, 0, byte(len(b))}, b...)
	}
	if list, err := parseList(append(record("a"), record("b")...)); err != nil || len(list) != 2 {
		t.Error(list, err)
	}
	for _, bad := range [][]byte{record(""), record("."), record(".."), record("a/b"), record("a\x00"), record("a")[:10], {0, 0},
		{255, 255, 255, 255}, bytes.Repeat(record("a"), guestwire.MaxList+1)} {
		if _, err := parseList(bad); !errors.Is(err, guestwire.ErrProtocol) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}

// FuzzClient checks that a session survives whatever an agent sends: each operation returns.
func FuzzClient(f *testing.F) {
	frame := func(kind guestwire.Kind, id uint32, payload []byte) []byte {
		var b bytes.Buffer
		guestwire.NewWriter(&b).Write(kind, id, payload)
		return b.Bytes()
	}
	f.Add(byte(0), append(frame(guestwire.KindData, 1, []byte("\x01out")), frame(guestwire.KindReply, 1, guestwire.ReplyPayload(&guestwire.Exit{}, nil))...))
	f.Add(byte(1), frame(guestwire.KindReply, 1, guestwire.ReplyPayload(nil, &guestwire.Failure{Kind: "invalid"})))
	f.Add(byte(2), frame(guestwire.KindData, 1, guestwire.Marshal([]byte("\x01\x00\x00\x00\x40"), &guestwire.FileInfo{Name: "a"})))
	f.Add(byte(3), frame(guestwire.KindReply, 1, guestwire.ReplyPayload(&guestwire.Identity{Renewed: true}, nil)))
	f.Add(byte(4), frame(guestwire.KindCredit, 1, guestwire.CreditPayload(guestwire.Stdin, 5)))
	f.Fuzz(func(t *testing.T, op byte, data []byte) {
		s := hostile(t, Config{MustRenew: op%5 == 3, OpTime: patience, Grace: patience}, func(conn net.Conn, w *guestwire.Writer, in *guestwire.Reader) {
			in.Next()
			go io.Copy(io.Discard, conn)
			w.Raw(data)
			conn.Close()
		})
		begin := time.Now()
		switch op % 5 {
		case 0:
			s.Exec(t.Context(), Command{Argv: []string{"x"}, Stdin: strings.NewReader("in"), MaxOutput: 100})
		case 1:
			s.ReadFile(t.Context(), "/x", 10)
		case 2:
			s.List(t.Context(), "/x")
		case 3:
			s.Renew(t.Context(), guestwire.Renewal{Hostname: "x"})
		case 4:
			s.WriteFile(t.Context(), "/x", make([]byte, 3*guestwire.Window), NewFile{})
		}
		if time.Since(begin) > patience/2 {
			t.Error("it waited for an agent that was gone")
		}
	})
}
