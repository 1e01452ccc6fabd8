//go:build linux

package direct

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/ktest"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
	"bailey/internal/terminal"
)

// TestConsoleGivesTheTerminalBack checks that the terminal is restored, even after a panic.
func TestConsoleGivesTheTerminalBack(t *testing.T) {
	_, slave := ktest.PTY(t)
	defer slave.Close()
	before, _ := terminal.Get(slave)
	broken := func(do func(c *console)) (said any) {
		c, err := openConsole(slave, slave)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { said = recover() }()
		defer c.close()
		if now, _ := terminal.Get(slave); now == before {
			t.Error("the terminal is not raw")
		}
		do(c)
		return nil
	}
	if said := broken(func(c *console) { panic("boom") }); said != "boom" {
		t.Error(said)
	}
	if now, _ := terminal.Get(slave); now != before {
		t.Errorf("%+v, was %+v", now, before)
	}
	said := broken(func(c *console) {
		defer func() {
			if now, _ := terminal.Get(slave); now != before {
				t.Error("a goroutine that breaks leaves the terminal raw")
			}
		}()
		c.restoreOnPanic(func() { panic("boom") })
	})
	if said != "boom" {
		t.Error(said)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := openConsole(null, slave); err == nil {
		t.Error("a terminal was made for what is none")
	}
}

func TestSizes(t *testing.T) {
	for word, want := range map[string]int64{"1M": 1 << 20, "512M": 512 << 20, "2G": 2 << 30, "1048576": 1 << 20, "2048K": 2 << 20, "4294967296G": 1 << 62} {
		if got, err := ParseSize(word); err != nil || got != want {
			t.Errorf("%s: %d, %v", word, got, err)
		}
	}
	for _, word := range []string{"", "M", "0", "1K", "1023K", "-1G", "1.5G", "1 G", "1GG", "1m", "0x1M", "+1M", "1_0M", "9223372036854775808", "4294967297G", "99999999999999999999G"} {
		if got, err := ParseSize(word); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%q is %d, %v", word, got, err)
		}
	}
}

func FuzzSize(f *testing.F) {
	f.Add("512M")
	f.Add("4294967297G")
	f.Fuzz(func(t *testing.T, word string) {
		if n, err := ParseSize(word); err == nil && (n < 1<<20 || n > 1<<62) {
			t.Errorf("%q is %d", word, n)
		}
	})
}

// TestPassed checks that a variable is passed by name or as NAME=VALUE. If a named variable is not set, it is an error.
func TestPassed(t *testing.T) {
	here := map[string]string{"A": "1", "EMPTY": "", "TERM": "xterm"}
	look := func(name string) (string, bool) { v, ok := here[name]; return v, ok }
	got, err := resolveEnv([]string{"A", "EMPTY", "B=x=y", "A=2"}, look)
	if err != nil || !slices.Equal(got, []string{"A=1", "EMPTY=", "B=x=y", "A=2"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := resolveEnv([]string{"NONE"}, look); !errors.Is(err, bailey.Invalid) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := resolveEnv(nil, look); err != nil || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestTerminalsName checks that TERM is not passed on if it could be a path to another file.
func TestTerminalsName(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../x", "x y", "x\n", "é", "x\x00", strings.Repeat("x", 65), "-\x1b[2J"} {
		var job bailey.Job
		forTerminal(&job, name)
		if len(job.Env) != 0 || slices.ContainsFunc(job.Read, func(p string) bool { return strings.Contains(p, "terminfo") }) {
			t.Errorf("%q: %q %q", name, job.Env, job.Read)
		}
	}
	job := bailey.Job{Timeout: time.Second}
	forTerminal(&job, "xterm-256color")
	if !slices.Equal(job.Env, []string{"TERM=xterm-256color"}) || !slices.Contains(job.Read, "/lib/terminfo/x/xterm-256color") || job.Timeout != time.Second {
		t.Errorf("%+v", job)
	}
	job = bailey.Job{Env: []string{"TERM=mine"}}
	forTerminal(&job, "xterm")
	if !slices.Equal(job.Env, []string{"TERM=mine"}) || job.Timeout < 24*time.Hour {
		t.Errorf("%+v", job)
	}
}

// TestBanner checks that the banner is one line, whatever names it contains.
func TestBanner(t *testing.T) {
	for _, c := range []struct {
		job  bailey.Job
		cage bailey.Cage
		want string
	}{
		{bailey.Job{Command: "id"}, bailey.Cage{Kind: "full"}, ""},
		{bailey.Job{Command: "id"}, bailey.Cage{Kind: "landlock", Lesser: "no\nnamespaces"}, "bailey: cage landlock, 0 layers; not the full jail: no\\nnamespaces\n"},
		{bailey.Job{Command: "/bin/bash", TTY: true}, bailey.Cage{Kind: "full", Layers: make([]string, 20)},
			"bailey: cage full, 20 layers; bound: none of your files; only bash may run, --exec ls adds more; exit ends it\n"},
		{bailey.Job{Command: "sh", TTY: true, Exec: []string{"/bin/ls"}, Places: []bailey.Place{{Path: "/a"}, {Path: "/\x1b[2J\n", Write: true}}}, bailey.Cage{Kind: "full"},
			"bailey: cage full, 0 layers; bound: /a (read-only), /\\x1b[2J\\n (writable); sh, ls may run, --exec adds more; exit ends it\n"},
	} {
		var out strings.Builder
		(&commands{&cli.App{Stderr: &out}}).printCageLimits(c.job, c.cage)
		if out.String() != c.want {
			t.Errorf("%q\nwant\n%q", &out, c.want)
		}
	}
}

// TestLayersHaveTheirWords checks that `jail explain` describes the purpose of each isolation layer on this host.
func TestLayersHaveTheirWords(t *testing.T) {
	ktest.Require(t, "userns", "netns")
	j, err := server.OpenJail(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	run, err := j.Plan(t.Context(), bailey.Job{Command: "true", NeedsProc: true})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	cage := run.Cage()
	for _, name := range cage.Layers {
		if layerWords[name] == "" {
			t.Errorf("no word for %s; there are %v", name, slices.Sorted(maps.Keys(layerWords)))
		}
	}
	var out strings.Builder
	p := apitype.CagePlan{Cage: cage}
	for i, line := range strings.Split(strings.TrimSuffix(cage.Plan, "\n"), "\n") {
		p.Plan = append(p.Plan, apitype.PlanStep{Layer: cage.PlanLayers[i], Text: line})
	}
	printPlan(&out, p)
	for i := range p.Plan {
		if n := strings.Count(out.String(), fmt.Sprintf("\n  %3d  ", i+1)); n != 1 {
			t.Errorf("step %d stands there %d times", i+1, n)
		}
	}
}

// TestExplainWarm checks that the steps of a warm cage are grouped by time and process. A step of the plan must appear
// as in the plan, and a system call with the line that it implements.
func TestExplainWarm(t *testing.T) {
	var out strings.Builder
	p := apitype.CagePlan{Cage: bailey.Cage{Kind: "full", PlanDigest: "d1"}, Plan: []apitype.PlanStep{{Layer: "", Text: "head"}, {Layer: "mountns", Text: "private"}, {Layer: "keyring", Text: "keyring"}},
		Warm: []bailey.WarmStep{{When: "tool", Line: 3, Text: "keyctl 1"}, {When: "init", Text: "setsid"}, {When: "once", Line: 2}, {When: "call", Line: 4}}}
	printWarmPlan(&out, p)
	want := "cage full, plan d1\n" + warmWords[0].words + "\n    2  private\n" + warmWords[1].words + "\n    4  \n" +
		warmWords[2].words + "\n       setsid\n" + warmWords[3].words + "\n    3  keyctl 1\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	if printWarmPlan(&out, apitype.CagePlan{}); !strings.Contains(out.String(), "no helper serves") {
		t.Errorf("%q", out.String())
	}
}
