package program_test

import (
	"errors"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/program"
)

func TestParseFlags(t *testing.T) {
	t.Parallel()
	p := program.Program{Name: "bailey-test", Usage: "the usage\n"}
	var dir string
	declare := func(f *flag.FlagSet) { f.StringVar(&dir, "dir", "", "") }
	var help strings.Builder
	rest, err := p.ParseFlags("serve", []string{"--dir", "/x", "a"}, &help, declare)
	if err != nil || dir != "/x" || len(rest) != 1 || help.Len() > 0 {
		t.Errorf("got %q, %q, %v, %q", dir, rest, err, help.String())
	}
	if err := p.RefuseArguments("serve", rest); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) != "bailey-test --help" {
		t.Errorf("got %v", err)
	}
	if _, err := p.ParseFlags("serve", []string{"--none"}, &help, declare); !errors.Is(err, bailey.Invalid) {
		t.Errorf("an unknown flag: %v", err)
	}
	if _, err := p.ParseFlags("serve", []string{"-h"}, &help, declare); !errors.Is(err, flag.ErrHelp) ||
		help.String() != "the usage\n" {
		t.Errorf("got %v, %q", err, help.String())
	}
}

func TestStateDir(t *testing.T) {
	t.Parallel()
	p := program.Program{Name: "bailey-test"}
	for _, c := range []struct{ named, variable, state, want string }{
		{"/a", "/b", "/c", "/a"}, {"", "/b", "/c", "/b"}, {"", "", "/c", "/c/bailey-test"}} {
		got, err := p.StateDir(c.named, "VARIABLE", func(name string) string {
			return map[string]string{"VARIABLE": c.variable, "XDG_STATE_HOME": c.state}[name]
		})
		if want, _ := filepath.Abs(c.want); err != nil || got != want {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
}
