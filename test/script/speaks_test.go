//go:build linux

package script_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"bailey/internal/ktest"
)

// speaks CODE COMMAND... runs a command that must exit with CODE and write exactly one JSON document to standard
// output. The document is stored in said.json. If the exit code is not 0, it must have the form of a refusal. Then the
// command runs again with an invalid home, and must again write one document, except bench, which is slow and uses its
// own home. An argument @FILE:PATH is replaced by a field of a JSON file.
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
		if err := ktest.OneJSON(out); err != nil {
			ts.Fatalf("%s: %v", words, err)
		}
		if err := ktest.RefusalJSON(out); code != 0 && err != nil {
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
