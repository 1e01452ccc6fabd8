package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// programs are hooks. A test starts its own binary as one of them. Those that do not call Main write arbitrary output.
var programs = map[string]func(){
	"answers": func() {
		Main(func(_ context.Context, e Event) (Answer, error) {
			return Answer{Message: string(e.In().ID), Updated: map[string]any{"rev": "main"}}, nil
		})
	},
	"blocks": func() {
		Main(func(context.Context, Event) (Answer, error) { return Answer{Block: true, Message: "not today"}, nil })
	},
	"fails":  func() { Main(func(context.Context, Event) (Answer, error) { return Answer{}, errors.New("no model") }) },
	"panics": func() { Main(func(context.Context, Event) (Answer, error) { panic("oh") }) },
	"misfit": func() { Main(func(context.Context, Event) (Answer, error) { return Answer{Updated: "text"}, nil }) },
	"waits": func() {
		Main(func(ctx context.Context, _ Event) (Answer, error) {
			fmt.Fprintln(os.Stderr, "waiting")
			<-ctx.Done()
			return Answer{}, ctx.Err()
		})
	},
	"early":   func() {},
	"deaf":    func() { os.Stdin.Close(); fmt.Println("{}") },
	"half":    func() { fmt.Print(`{"hookSpecificOutput":{"updatedInput":{`) },
	"bytes":   func() { os.Stdout.Write([]byte{'{', 0xff, '}'}) },
	"another": func() { fmt.Print(`{"hookSpecificOutput":{"hookEventName":"PostToolUse"}}`) },
	"floods": func() {
		for b := bytes.Repeat([]byte(" "), 1<<20); len(b) > 0; b = b[:len(b)-1<<13] { // 64.5 MiB
			os.Stdout.Write(b)
		}
	},
}

// TestMain runs a hook if a test requests one.
func TestMain(m *testing.M) {
	if program, ok := programs[os.Getenv("HOOK_PROGRAM")]; ok {
		program()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start starts a hook like a host, without a cage.
func start(t *testing.T, program string, stdin []byte) (*exec.Cmd, *Output, *Output) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	out, log := &Output{}, &Output{}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), "HOOK_PROGRAM="+program), bytes.NewReader(stdin), out, log
	return cmd, out, log
}

func ran(cmd *exec.Cmd, out, log *Output) Ran {
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Ran{Err: err}
	}
	r := Ran{Exit: cmd.ProcessState.ExitCode()}
	r.Stdout, r.Truncated = out.Kept()
	r.Stderr, _ = log.Kept()
	return r
}

// TestPrograms runs real programs, some of which violate the protocol.
func TestPrograms(t *testing.T) {
	e := PreToolUse{Session: Session{ID: "s-1"}, ToolName: "git.show", ToolInput: map[string]any{"text": strings.Repeat("x", 1<<19)}}
	for program, want := range map[string]struct {
		effect Effect
		reason string
	}{
		"answers": {Changed, ""},
		"blocks":  {Blocked, "not today"},
		"fails":   {Blocked, "it ended with code 1: no model"},
		"panics":  {Blocked, "it ended with code 1: panic: oh"},
		"misfit":  {Blocked, "it ended with code 1: updatedInput must be the tool's new input, an object"},
		"early":   {Kept, ""},
		"deaf":    {Kept, ""},
		"half":    {Blocked, "it ends within the object"},
		"bytes":   {Blocked, "1:2: this is not UTF-8"},
		"another": {Blocked, `this is an answer to "PostToolUse"`},
		"floods":  {Blocked, "more than 1048576 bytes"},
	} {
		t.Run(program, func(t *testing.T) {
			o := Interpret(e, ran(start(t, program, []byte(written(t, e)))), "")
			if o.Effect != want.effect || !strings.Contains(o.Reason, want.reason) {
				t.Errorf("%+v", o)
			}
			if program == "answers" && (o.Message != "s-1" || o.Event.(PreToolUse).ToolInput["rev"] != "main") {
				t.Errorf("%+v", o)
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		if o := Interpret(e, ran(exec.Command(t.TempDir()), &Output{}, &Output{}), ""); o.Effect != Blocked || !strings.Contains(o.Reason, "cannot run it") {
			t.Errorf("%+v", o)
		}
	})
}

// TestMainRefuses checks that an invalid frame does not reach the author's function.
func TestMainRefuses(t *testing.T) {
	for _, frame := range []string{"", "{", "{}", written(t, SessionStart{}) + "{}", written(t, SessionStart{}) + strings.Repeat(" ", MaxFrame), "{\"hook_event_name\":\"\xff\"}"} {
		var out, log bytes.Buffer
		exit := runHook(t.Context(), strings.NewReader(frame), &out, &log, func(context.Context, Event) (Answer, error) {
			t.Errorf("asked about %.40q", frame)
			return Answer{}, nil
		})
		if exit != exitFailure || out.Len() > 0 || log.Len() == 0 {
			t.Errorf("%.40q: exit %d, %q, %q", frame, exit, &out, &log)
		}
	}
	if exit := runHook(t.Context(), strings.NewReader(written(t, SessionStart{})), broken{}, &bytes.Buffer{}, func(context.Context, Event) (Answer, error) {
		return Answer{}, nil
	}); exit != exitFailure {
		t.Errorf("an answer that nobody got: exit %d", exit)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

// waiting closes said at the first write.
type waiting struct {
	Output
	said chan struct{}
}

func (w *waiting) Write(p []byte) (int, error) {
	if w.said != nil {
		close(w.said)
		w.said = nil
	}
	return w.Output.Write(p)
}
