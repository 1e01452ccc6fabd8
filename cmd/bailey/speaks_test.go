//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"bailey/internal/ktest"
)

// speaksOtherwise are the verbs whose stdout is somebody else's, with --json too, and whose it is; and what no script can have.
var speaksOtherwise = map[string]string{
	"approvals serve":   "it serves until it is ended; approve-page.txtar has the line with which it begins",
	"completion":        "cobra's own: a script for a shell",
	"gateway":           "it serves until it is ended, and prints nothing",
	"help":              "cobra's own: a page",
	"hooks exec":        "the hook's own streams",
	"hooks run":         "the frame that goes on",
	"jail run":          "the program's own streams; what held it is JSON on stderr",
	"judge claude-code": "the protocol of the agent's hooks",
	"man":               "a page, for man(1)",
	"receipts export":   "the format that was asked for, a line a receipt",
	"redact":            "the text; the summary is JSON on stderr, and with --report on stdout",
	"serve":             "MCP's messages",
	"shim activate":     "a script for a shell",
	"tui":               "a screen",
	"wrap":              "the agent's own streams",
}

func verbOf(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "bailey ") }

// TestEveryVerbSpeaksJSON: some script has each verb succeed with --json, most of them json.txtar, or the verb is named with the reason why it
// cannot. A verb that cannot read its own words says so in the same shape as every other.
func TestEveryVerbSpeaksJSON(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	root := (&app{}).root()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	spoken := map[string]bool{}
	scripts, _ := filepath.Glob("testdata/script/*.txtar")
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) > 3 && words[0] == "speaks" && words[1] == "0" {
				found, _, err := root.Find(words[3:])
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				spoken[verbOf(found)] = true
			}
		}
	}
	if len(spoken) < 80 {
		t.Fatalf("%d verbs are spoken: this test does not see the scripts", len(spoken))
	}
	for _, c := range everyVerb(root) {
		if verb := verbOf(c); !spoken[verb] && !c.HasSubCommands() && speaksOtherwise[verb] == "" {
			t.Errorf("no script has %s succeed with --json: speaks 0 bailey %s --json", verb, verb)
		}
	}
	for verb := range speaksOtherwise {
		if c, _, err := root.Find(strings.Fields(verb)); err != nil || verbOf(c) != verb {
			t.Errorf("there is no verb %q to except", verb)
		}
	}
	for _, c := range append(everyVerb(root), root) {
		if c.DisableFlagParsing {
			t.Errorf("%s takes --json for a word of its own", verbOf(c))
		}
		words := append(strings.Fields(c.CommandPath())[1:], "--json", "--no-such-flag")
		cmd := exec.Command(os.Args[0], words...)
		cmd.Args[0], cmd.Env = "bailey", append(os.Environ(), "BAILEY_HOME="+t.TempDir())
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitInput {
			t.Errorf("%s: %v", words, err)
		}
		if err := refused(out); err != nil {
			t.Errorf("%s: %v", words, err)
		}
	}
}

// speaks CODE COMMAND... runs a command that must end with CODE and write one JSON document to stdout and nothing else, which is kept in
// said.json. Then it runs it once more with a home that is none: whatever comes of that is one document too. Measuring takes its time, in a
// home of its own, and is done once. A document that says no has the one shape. A word @FILE:PATH is a field of a JSON file.
func speaks(ts *testscript.TestScript, _ bool, args []string) {
	words := slices.Clone(args[1:])
	for i, word := range words {
		if at, ok := strings.CutPrefix(word, "@"); ok {
			file, path, _ := strings.Cut(at, ":")
			words[i] = fmt.Sprint(field(ts, file, path))
		}
	}
	said := func() (string, []byte) {
		code := 0
		err := ts.Exec(words[0], words[1:]...)
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			code, err = exit.ExitCode(), nil
		}
		ts.Check(err)
		out := []byte(ts.ReadFile("stdout"))
		if err := document(out); err != nil {
			ts.Fatalf("%s: %v", words, err)
		}
		if err := refused(out); code != 0 && err != nil {
			ts.Fatalf("%s ends with %d: %v", words, code, err)
		}
		return fmt.Sprint(code), out
	}
	code, out := said()
	if code != args[0] {
		ts.Fatalf("%s ended with %s, want %s", words, code, args[0])
	}
	if home := ts.Getenv("BAILEY_HOME"); words[1] != "bench" {
		ts.Setenv("BAILEY_HOME", "none")
		said()
		ts.Setenv("BAILEY_HOME", home)
	}
	ts.Check(os.WriteFile(ts.MkAbs("said.json"), out, 0o600))
}

// document wants one JSON document and nothing but that.
func document(out []byte) error {
	d := json.NewDecoder(bytes.NewReader(out))
	var one any
	if err := d.Decode(&one); err != nil {
		return fmt.Errorf("no JSON: %w: %q", err, out)
	}
	if err := d.Decode(&one); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more than one JSON document: %q", out)
	}
	return nil
}

// refused wants the one shape in which every door of the command line says no.
func refused(out []byte) error {
	if err := document(out); err != nil {
		return err
	}
	var r struct {
		OK     *bool
		Error  string
		Reason string
	}
	if err := json.Unmarshal(out, &r); err != nil || r.OK == nil || *r.OK || r.Error == "" || r.Reason == "" {
		return fmt.Errorf("not {ok:false, error, reason, hint}: %s", out)
	}
	return nil
}
