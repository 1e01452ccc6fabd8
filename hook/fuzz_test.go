package hook

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzDecode checks that no input causes a panic. A decoded frame must be valid JSON, and must be the same after it is
// encoded again.
func FuzzDecode(f *testing.F) {
	for _, v := range readVectors(f).Events {
		f.Add(raw(f, v.Frame, v.FrameHex))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		e, err := Decode(frame)
		if err != nil {
			return
		}
		if !json.Valid(frame) || !utf8.Valid(frame) {
			t.Fatalf("%q is read", frame)
		}
		again, err := Encode(e)
		if err != nil {
			return // escapes may make it longer than the limit
		}
		if back, err := Decode(again); err != nil || !reflect.DeepEqual(back, e) {
			t.Fatalf("%q is read as %+v, and again as %+v, %v", frame, e, back, err)
		}
	})
}

// FuzzInterpret checks that no output or exit of a hook has an effect that the protocol does not allow. With "block",
// an event may only continue as it was, or as a valid answer changed it.
func FuzzInterpret(f *testing.F) {
	for _, v := range readVectors(f).Outcomes {
		f.Add([]byte(v.Event), raw(f, v.Stdout, v.StdoutHex), []byte(v.Stderr), v.Exit, v.Truncated, v.TimedOut, v.OnFailure == Block)
	}
	f.Fuzz(func(t *testing.T, frame, stdout, stderr []byte, exit int, truncated, timedOut, block bool) {
		e, err := Decode(frame)
		if err != nil {
			return
		}
		policy := Pass
		if block {
			policy = Block
		}
		o := Interpret(e, Ran{Stdout: stdout, Stderr: stderr, Exit: exit, Truncated: truncated, TimedOut: timedOut}, policy)
		bad := truncated || timedOut || exit != 0
		answer, err := DecodeAnswer(e, stdout)
		if err == nil && len(bytes.TrimSpace(stdout)) > 0 && !json.Valid(stdout) {
			t.Fatalf("%q is read", stdout)
		}
		switch {
		case (o.Effect == Blocked) != (o.Event == nil), !utf8.ValidString(o.Reason + o.Message):
			t.Fatalf("%+v", o)
		case (o.Effect == Kept || o.Effect == Changed) && (bad || err != nil || answer.Block),
			o.Effect == Failed && block, o.Effect == Changed && answer.Updated == nil,
			(o.Effect == Kept || o.Effect == Failed) && !reflect.DeepEqual(o.Event, e):
			t.Fatalf("%+v of %q, exit %d", o, stdout, exit)
		case o.Event != nil && o.Event.Name() != e.Name():
			t.Fatalf("%s became %s", e.Name(), o.Event.Name())
		}
	})
}

// FuzzParseConfig checks that no input causes a panic. A file that loads must be valid JSON, and each of its hooks must
// be startable.
func FuzzParseConfig(f *testing.F) {
	for _, v := range readVectors(f).Configs {
		f.Add([]byte(v.File), "/home/me")
		f.Add([]byte(v.File), "")
	}
	f.Fuzz(func(t *testing.T, data []byte, home string) {
		c, err := ParseConfig(data, home)
		if err != nil {
			if c.Hooks != nil {
				t.Fatalf("%+v, %v", c, err)
			}
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("%q loads", data)
		}
		for _, h := range c.Hooks {
			if len(h.Argv) == 0 || h.Argv[0] == "" || h.Timeout <= 0 || h.Timeout > MaxTimeout || h.Line < 1 || h.Event == OnSessionEnd && h.OnFailure == Block {
				t.Fatalf("%+v", h)
			}
			for _, p := range append(h.Read, h.Write...) {
				if !isAbsolute(p) || p == "/" || !isClean(p) {
					t.Fatalf("a place %q", p)
				}
			}
			if h.Unsandboxed && !bytes.Contains(data, []byte("false")) {
				t.Fatalf("no cage by %q", data)
			}
		}
	})
}
