package hooks_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/hook"
	"bailey/internal/ktest"
)

// ask runs a hook as a plain program: no cage, and of the environment only PATH and what is named.
func ask(t *testing.T, e hook.Event, f hook.OnFailure, program string, env ...string) hook.Outcome {
	t.Helper()
	frame, err := hook.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	var out, log hook.Output
	cmd := exec.Command(program)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8"}, env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(frame), &out, &log
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := hook.Ran{Exit: cmd.ProcessState.ExitCode()}
	r.Stdout, r.Truncated = out.Kept()
	r.Stderr, _ = log.Kept()
	return hook.Interpret(e, r, f)
}

var in = hook.Session{ID: "s-1", Dir: "/src"}

func TestTranslate(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "python3")
	const said = "Zeig die Änderungen in <main> & \"x\""
	status, reply := 200, `{"choices":[{"message":{"role":"assistant","content":" Show the changes in <main> \n"}}]}`
	asked := 0
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []struct{ Role, Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Messages) != 2 || body.Messages[1].Content != said {
			t.Errorf("the model is asked %+v, %v", body, err)
		}
		asked++
		w.WriteHeader(status)
		io.WriteString(w, reply)
	}))
	defer model.Close()
	prompt := func(text string) hook.Outcome {
		return ask(t, hook.UserPromptSubmit{Session: in, Prompt: text}, "", "translate/translate.py", "MODEL_URL="+model.URL, "http_proxy=http://127.0.0.1:1")
	}
	o := prompt(said)
	if o.Effect != hook.Changed || o.Event.(hook.UserPromptSubmit).Prompt != "Show the changes in <main>" || o.Message == "" {
		t.Errorf("%+v", o)
	}
	if o := prompt("show the changes"); o.Effect != hook.Kept || asked != 1 {
		t.Errorf("an English prompt: %+v, asked %d times", o, asked)
	}
	for _, reply = range []string{"{}", "rubbish", `{"choices":[{"message":{"content":""}}]}`} {
		if o := prompt(said); o.Effect != hook.Failed || !strings.Contains(o.Reason, "not translated") || o.Event.(hook.UserPromptSubmit).Prompt != said {
			t.Errorf("the model says %s: %+v", reply, o)
		}
	}
	if status = 500; prompt(said).Effect != hook.Failed {
		t.Error("a broken model is no failure")
	}
	model.Close()
	if o := prompt(said); o.Effect != hook.Failed {
		t.Errorf("no model: %+v", o)
	}
}

func TestPaths(t *testing.T) {
	ktest.Require(t, "sh", "jq")
	for _, v := range []struct{ result, want string }{
		{`"nothing"`, ``},
		{`"see /home/alice/src/a.go:3 and /Users/bob"`, `"see ~/src/a.go:3 and ~"`},
		{`{"stdout":"/home/a/x\n/home/b","/home/a/k":[1,null,true,"/home/a"]}`, `{"stdout":"~/x\n~","~/k":[1,null,true,"~"]}`},
		{`"/srv/home/x /homes/x /home"`, ``},
		{`"a=/home/al,\"/home/al\",'/home/al',file:///home/al/"`, `"a=~,\"~\",'~',file://~/"`},
	} {
		e := decode(t, `{"hook_event_name":"PostToolUse","session_id":"s-1","cwd":"/","toolName":"a.b","toolInput":{},"toolResult":`+v.result+`}`)
		o := ask(t, e, hook.Block, "paths/paths.sh")
		want := hook.Kept
		if v.want != "" {
			want = hook.Changed
		} else {
			v.want = v.result
		}
		if o.Effect != want {
			t.Errorf("%s: %+v", v.result, o)
			continue
		}
		var wanted any
		if err := json.Unmarshal([]byte(v.want), &wanted); err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(o.Event.(hook.PostToolUse).ToolResult)
		if as, _ := json.Marshal(wanted); !bytes.Equal(got, as) {
			t.Errorf("%s becomes %s", v.result, got)
		}
	}
	if o := ask(t, hook.PostToolUse{ToolResult: "/home/a"}, hook.Block, "paths/paths.sh", "PATH="+t.TempDir()); o.Effect != hook.Blocked {
		t.Errorf("without jq the result is shown: %+v", o)
	}
}

func decode(t *testing.T, frame string) hook.Event {
	t.Helper()
	e, err := hook.Decode([]byte(frame))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestNotify(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "go")
	program := filepath.Join(t.TempDir(), "notify")
	if out, err := exec.Command("go", "build", "-o", program, "./notify").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var told []string
	status := 200
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]string
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body) != 1 || r.Method != http.MethodPost {
			t.Errorf("%s %v, %v", r.Method, body, err)
		}
		told = append(told, body["text"])
		w.WriteHeader(status)
	}))
	defer chat.Close()
	const address = "/services/T0/B0/secret"
	say := func(e hook.Event) hook.Outcome { return ask(t, e, "", program, "NOTIFY_URL="+chat.URL+address) }

	bad := hook.PostToolUse{Session: in, ToolName: "<!channel>", ToolInput: map[string]any{"token": "hunter2"}, ToolResult: "hunter2", IsError: true}
	good := bad
	good.IsError = false
	for _, e := range []hook.Event{good, bad, hook.SessionStart{Session: in}, hook.SessionEnd{Session: in}} {
		if o := say(e); o.Effect != hook.Kept {
			t.Errorf("%s: %+v", e.Name(), o)
		}
	}
	if got := strings.Join(told, "; "); got != "&lt;!channel&gt; failed in session s-1; session s-1 ended" {
		t.Errorf("told: %s", got)
	}
	status = 500
	o := say(bad)
	chat.Close()
	for _, o := range []hook.Outcome{o, say(bad), ask(t, bad, "", program), ask(t, bad, "", program, "NOTIFY_URL=:"+address)} {
		if o.Effect != hook.Failed || strings.Contains(o.Reason, "secret") {
			t.Errorf("%+v", o)
		}
	}
}

// TestGuide runs the program that docs/hooks.md begins with, and loads the file that it shows.
func TestGuide(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "python3")
	text, err := os.ReadFile("../../docs/hooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(text), "```python\n")
	code, _, _ = strings.Cut(code, "```")
	program := filepath.Join(t.TempDir(), "first.py")
	if err := os.WriteFile(program, []byte(code), 0o755); err != nil {
		t.Fatal(err)
	}
	call := hook.PreToolUse{Session: in, ToolName: "git.push", ToolInput: map[string]any{"ref": "main"}}
	if o := ask(t, call, "", program); o.Effect != hook.Blocked || o.Reason != "main is released: push to a branch" {
		t.Errorf("%+v", o)
	}
	call.ToolInput["ref"] = "topic"
	for _, e := range []hook.Event{call, hook.SessionStart{Session: in}} {
		if o := ask(t, e, "", program); o.Effect != hook.Kept {
			t.Errorf("%+v", o)
		}
	}
	_, file, _ := strings.Cut(string(text), "## hooks.json\n\n```json\n")
	file, _, _ = strings.Cut(file, "```")
	if c, err := hook.ParseConfig([]byte(file), "/home/me"); err != nil || len(c.Hooks) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestFile: hooks.json loads, and the programs that it names are here.
func TestFile(t *testing.T) {
	data, err := os.ReadFile("hooks.json")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Dir(here)
	c, err := hook.ParseConfig(data, home)
	if err != nil || len(c.Hooks) != 4 {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, h := range c.Hooks {
		program := h.Argv[0]
		if filepath.Base(program) == "notify" {
			program = filepath.Join(h.Folder(), "main.go") // it is built where it is put
		}
		if _, err := os.Stat(program); err != nil || h.Unsandboxed || len(h.Network) == 0 && h.OnFailure != hook.Block {
			t.Errorf("%+v, %v", h, err)
		}
	}
}
