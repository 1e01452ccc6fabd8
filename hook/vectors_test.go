package hook

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"bailey"
)

// vectors is the content of testdata/vectors.json, for authors of other implementations of the protocol.
type vectors struct {
	Events []struct {
		Name, Frame, FrameHex string
		Error                 string // part of the error; "": the frame is valid
		Again                 string // the frame when encoded again; "": the same
	}
	Outcomes []struct {
		Name, Event, Stdout, StdoutHex, Stderr string
		Exit                                   int
		Truncated, TimedOut                    bool
		OnFailure                              OnFailure
		Effect                                 string
		Becomes                                string // frame of the event that continues; "": unchanged
		Message, Reason                        string // a part of each
	}
	Configs []struct {
		Name, File, Error string
		Hooks             []struct {
			Event                           Name
			Argv, Env, Read, Write, Network []string
			TimeoutMS                       int64 `json:"timeout_ms"`
			Unsandboxed                     bool
			Matcher                         string
			OnFailure                       OnFailure
		}
	}
}

func readVectors(t testing.TB) (v vectors) {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if len(v.Events) < 30 || len(v.Outcomes) < 80 || len(v.Configs) < 60 {
		t.Fatal("vectors are missing")
	}
	return v
}

func raw(t testing.TB, text, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, text...)
}

func event(t testing.TB, frame string) Event {
	t.Helper()
	e, err := Decode([]byte(frame))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func written(t testing.TB, e Event) string {
	t.Helper()
	b, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// refused checks that err is Invalid, contains part and has a hint.
func refused(t testing.TB, err error, part string) {
	t.Helper()
	if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), part) || bailey.HintOf(err) == "" {
		t.Errorf("%v (hint %q), want %q", err, bailey.HintOf(err), part)
	}
}

func TestVectorsOfEvents(t *testing.T) {
	for _, v := range readVectors(t).Events {
		t.Run(v.Name, func(t *testing.T) {
			frame := raw(t, v.Frame, v.FrameHex)
			e, err := Decode(frame)
			if v.Error != "" {
				refused(t, err, v.Error)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if v.Again == "" {
				v.Again = v.Frame
			}
			if got := written(t, e); got != v.Again+"\n" {
				t.Errorf("written again:\n%s\nwant\n%s", got, v.Again)
			}
		})
	}
}

func TestVectorsOfOutcomes(t *testing.T) {
	for _, v := range readVectors(t).Outcomes {
		t.Run(v.Name, func(t *testing.T) {
			e := event(t, v.Event)
			o := Interpret(e, Ran{Stdout: raw(t, v.Stdout, v.StdoutHex), Stderr: []byte(v.Stderr), Exit: v.Exit,
				Truncated: v.Truncated, TimedOut: v.TimedOut}, v.OnFailure)
			if o.Effect.String() != v.Effect || v.Message != "" && o.Message != v.Message || !strings.Contains(o.Reason, v.Reason) {
				t.Errorf("%+v", o)
			}
			if stops := o.Effect == Blocked; stops != (o.Event == nil) || (stops || o.Effect == Failed) != (o.Reason != "" && o.Hint != "") {
				t.Errorf("%+v", o)
			}
			if v.Becomes == "" {
				v.Becomes = v.Event
			}
			if o.Event != nil && written(t, o.Event) != v.Becomes+"\n" {
				t.Errorf("becomes %s", written(t, o.Event))
			}
			if got := written(t, e); got != v.Event+"\n" {
				t.Errorf("the event itself was changed: %s", got)
			}
		})
	}
}

func TestVectorsOfConfigs(t *testing.T) {
	for _, v := range readVectors(t).Configs {
		t.Run(v.Name, func(t *testing.T) {
			c, err := ParseConfig([]byte(v.File), "/home/me")
			if v.Error != "" {
				refused(t, err, v.Error)
				if c.Hooks != nil {
					t.Errorf("an error, and hooks: %+v", c)
				}
				return
			}
			if err != nil || len(c.Hooks) != len(v.Hooks) {
				t.Fatalf("%+v, %v", c, err)
			}
			for i, want := range v.Hooks {
				got := c.Hooks[i]
				var network []string
				for _, e := range got.Network {
					network = append(network, e.Words())
				}
				if got.Event != want.Event || got.Timeout != time.Duration(want.TimeoutMS)*time.Millisecond || got.Unsandboxed != want.Unsandboxed ||
					got.Matcher != want.Matcher || got.OnFailure != want.OnFailure ||
					!reflect.DeepEqual([][]string{got.Argv, got.Env, got.Read, got.Write, network}, [][]string{want.Argv, want.Env, want.Read, want.Write, want.Network}) {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
	}
}

// TestSpecification checks that the examples in the package comment are valid.
func TestSpecification(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for block := range strings.SplitSeq(strings.ReplaceAll(string(text), "\n//\n", "\n\n"), "\n\n") {
		if strings.HasPrefix(block, "//\t{") {
			shown = append(shown, strings.ReplaceAll(block, "//\t", ""))
		}
	}
	if len(shown) != 3 {
		t.Fatalf("%d frames and files are shown", len(shown))
	}
	o := Interpret(event(t, shown[0]), Ran{Stdout: []byte(shown[1])}, "")
	c, err := ParseConfig([]byte(shown[2]), "/home/me")
	if o.Effect != Changed || err != nil || len(c.Hooks) != 2 || len(c.For(o.Event)) != 1 {
		t.Errorf("%+v; %+v, %v", o, c, err)
	}
}
