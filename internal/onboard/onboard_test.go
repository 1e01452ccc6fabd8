package onboard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
)

// TestWhatWasRead checks the data that must be found in the help of each tool: its style, the number of commands and
// options, and the kind of some options.
func TestWhatWasRead(t *testing.T) {
	for _, row := range []struct {
		tool, args        string
		style             Style
		commands, options int
		values            map[string]string // of options, by their longest name; "" is a switch
		operands          string            // ? marks an optional operand, + a repeatable one
	}{
		{"jq", "--help", Plain, 0, 16, map[string]string{"-c": "", "--tab": "", "--slurpfile": "2 values"}, "jq filter, file?+"},
		{"gh", "--help", Cobra, 20, 2, nil, ""},
		{"gh", "issue list --help", Cobra, 0, 13, map[string]string{"--limit": "int", "--state": "open|closed|all", "--web": ""}, ""},
		{"podman", "--help", Cobra, 58, 25, nil, ""},
		{"podman", "image list --help", Plain, 0, 9, map[string]string{"--all": "", "--filter": "strings"}, "IMAGE?"},
		{"podman", "image rm --help", Plain, 0, 4, map[string]string{"--force": ""}, "IMAGE+"},
		{"fdfind", "--help", Clap, 0, 44, map[string]string{"--hidden": "", "--max-depth": "depth", "--threads": "num"}, "pattern?, path?+"},
		{"rg", "--help", Clap, 0, 15, map[string]string{"--after-context": "NUM", "--binary": ""}, "PATTERN, PATH?+"},
		{"cargo", "--help", Clap, 15, 12, map[string]string{"--color": "WHEN", "--quiet": ""}, ""},
		{"cargo", "tree --help", Clap, 0, 26, map[string]string{"--charset": "utf8|ascii", "--depth": "DEPTH", "-Z": "FLAG"}, ""},
		{"black", "--help", Click, 0, 26, map[string]string{"--line-length": "INTEGER", "--check": "", "--config": "FILE"}, "SRC+"},
		{"flask", "--help", Click, 3, 5, map[string]string{"--env-file": "FILE", "--debug": ""}, ""},
		{"flask", "routes --help", Click, 0, 3, map[string]string{"--sort": "endpoint|methods|rule|match"}, ""},
		{"pipx", "--help", Argparse, 14, 2, nil, ""},
		{"pipx", "install --help", Argparse, 0, 10, map[string]string{"--suffix": "SUFFIX", "--force": ""}, "package_spec"},
		{"http", "--help", Argparse, 0, 44, map[string]string{"--pretty": "all|colors|format|none", "--json": ""}, "METHOD?, URL, REQUEST_ITEM?+"},
		{"num2words", "--help", Docopt, 0, 6, map[string]string{"--lang": "lang", "--list-languages": ""}, "number"},
		{"rsync", "--help", Plain, 0, 154, map[string]string{"--exclude": "PATTERN", "--recursive": "", "--max-size": "SIZE"}, "SRC+, DEST"},
		{"git", "--help", Plain, 22, 0, nil, ""},
		{"git", "log -h", Plain, 0, 9, map[string]string{"--decorate-refs": "pattern"}, "revision-range?, path?+"},
		{"curl", "--help", Plain, 0, 12, map[string]string{"--data": "data", "--fail": ""}, "url"},
		{"sort", "--help", Plain, 0, 31, map[string]string{"--output": "FILE", "--reverse": "", "--parallel": "N"}, "FILE?+"},
		{"systemctl", "--help", Plain, 70, 51, map[string]string{"--type": "TYPE", "--all": ""}, ""},
		{"hyperfine", "--help", Clap, 0, 25, map[string]string{"--warmup": "NUM", "--setup": "CMD"}, "command+"},
	} {
		t.Run(row.tool+" "+row.args, func(t *testing.T) {
			h := Read(load(t, row.tool).stdout[row.args])
			if h.Style != row.style || len(h.Commands) != row.commands || len(h.Options) != row.options {
				t.Errorf("%s, %d commands, %d options; want %s, %d, %d", h.Style, len(h.Commands), len(h.Options), row.style, row.commands, row.options)
			}
			for name, want := range row.values {
				i := slices.IndexFunc(h.Options, func(o Option) bool { return o.longName() == name })
				if i < 0 {
					t.Errorf("no option %s", name)
				} else if got := told(h.Options[i]); got != want {
					t.Errorf("%s wants %q, not %q", name, got, want)
				}
			}
			var operands []string
			for _, o := range h.Operands {
				operands = append(operands, o.Name+map[bool]string{false: "?"}[o.Required]+map[bool]string{true: "+"}[o.Many])
			}
			if got := strings.Join(operands, ", "); got != row.operands || h.Unclear != "" {
				t.Errorf("operands %s (%s), want %s", got, h.Unclear, row.operands)
			}
		})
	}
}

func told(o Option) string {
	switch {
	case o.Values > 1:
		return fmt.Sprintf("%d values", o.Values)
	case o.Choices != nil:
		return strings.Join(o.Choices, "|")
	}
	return o.Value
}

// TestCautious checks that drafts of real tools never contain dangerous options or effects.
func TestCautious(t *testing.T) {
	for tool, never := range map[string][]string{
		"fdfind": {"--exec", "--exec-batch"}, "sort": {"--output", "--compress-program"}, "rsync": {"--rsh", "--rsync-path", "--log-file"},
		"curl": {"--output", "--user", "--data"}, "black": {"--config", "--code"}, "http": {"--output", "--proxy", "--auth"}, "cargo": {"--config", "--registry"},
		"pipx": {"--python", "--index-url"}, "gh": {"--hostname", "--web"}, "podman": {"--env", "--privileged", "--tty"}, "jq": {"--slurpfile", "-- "},
		"rg": {"--pre"}, "tar": {"--to-command", "--use-compress-program", "--rsh-command", "--checkpoint-action", "--info-script"},
		"systemctl": {"--host", "--force", "--root"}, "df": nil, "ls": nil,
	} {
		d, p := draft(t, tool)
		for _, line := range strings.Split(string(d.YAML), "\n") {
			for _, word := range never {
				if strings.HasPrefix(strings.TrimSpace(line), "- '") && strings.Contains(line, word) {
					t.Errorf("%s has %s: %s", tool, word, line)
				}
			}
		}
		for _, c := range p.Capabilities {
			verb := string(c.ID[strings.LastIndexAny(string(c.ID), ".-")+1:])
			if c.SideEffect == pack.ReadOnly && !slices.Contains(vocabulary().reading, verb) &&
				!slices.Contains(vocabulary().readers, tool) && !regexp.MustCompile(`\.(is|get|list|show)-`).MatchString(string(c.ID)) {
				t.Errorf("%s looks only, by which word?", c.ID)
			}
			if c.SideEffect != pack.ReadOnly && (c.SideEffect != pack.Mutating || c.Risk != pack.High || c.Reversibility != pack.Irreversible) {
				t.Errorf("%s is %s, %s, %s", c.ID, c.SideEffect, c.Risk, c.Reversibility)
			}
			if len(c.Reaches()) > 0 || len(c.Wants()) > 0 || slices.ContainsFunc(c.PathInputs(), func(i pack.PathInput) bool { return i.Write }) {
				t.Errorf("%s reaches, wants or writes something", c.ID)
			}
		}
	}
}

// TestRendered checks that a draft renders inputs to the intended command line.
func TestRendered(t *testing.T) {
	for _, row := range []struct {
		tool, id string
		input    map[string]any
		paths    map[string]string
		want     string
	}{
		{"jq", "jq.run", map[string]any{"r": true, "jq_filter": ".a", "file": "x"}, map[string]string{"file": "/w/x"}, "-r .a /w/x"},
		{"git", "git.log", map[string]any{"decorate": "short", "revision_range": "HEAD", "path": "x"}, map[string]string{"path": "/w/x"}, "log --decorate=short HEAD -- /w/x"},
		{"podman", "podman.image-rm", map[string]any{"all": true, "image": []any{"a", "-b"}}, nil, "image rm --all -- a -b"},
		{"systemctl", "systemctl.is-active", map[string]any{"pattern": []any{"a.service", "b.service"}}, nil, "is-active a.service b.service"},
		{"systemctl", "systemctl.add-wants", map[string]any{"target": "t.target", "unit": []any{"a.service"}}, nil, "add-wants t.target a.service"},
		{"tar", "tar.list", map[string]any{"file": "x.tar", "null": true}, map[string]string{"file": "/w/x.tar"}, "--list --file=/w/x.tar --null"},
		{"ls", "ls.run", map[string]any{"l": true, "all": true, "file": "x"}, map[string]string{"file": "/w/x"}, "--all -l /w/x"},
		{"df", "df.run", map[string]any{"human_readable": true, "file": "x"}, map[string]string{"file": "/w/x"}, "--human-readable /w/x"},
		{"num2words", "num2words.run", map[string]any{"lang": "de", "number": "7"}, nil, "--lang=de 7"},
	} {
		_, p := draft(t, row.tool)
		i := slices.IndexFunc(p.Capabilities, func(c *pack.Capability) bool { return string(c.ID) == row.id })
		if i < 0 {
			t.Errorf("no %s", row.id)
			continue
		}
		args, err := p.Capabilities[i].Render(row.input, row.paths)
		if got := strings.Join(args, " "); err != nil || got != row.want {
			t.Errorf("%s: %q, %v; want %q", row.id, got, err, row.want)
		}
	}
	_, p := draft(t, "jq")
	if args, err := p.Capabilities[0].Render(map[string]any{"jq_filter": "-n"}, nil); !errors.Is(err, bailey.Invalid) {
		t.Errorf("an operand became an option: %q, %v", args, err)
	}
}

// TestRunsPrograms checks that a tool, or a command of one, that runs a given program is not drafted but left to a
// person.
func TestRunsPrograms(t *testing.T) {
	tree, err := Explore(context.Background(), Bounds{Probes: 2}, load(t, "hyperfine").probe)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Tool{Name: "hyperfine", Command: "hyperfine", Root: tree}); !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), "runs its arguments") {
		t.Error(err)
	}
	d, _ := draft(t, "flask")
	if !slices.ContainsFunc(d.LeftOut, func(l Left) bool { return l.What == "flask shell" && strings.Contains(l.Why, "prompt") }) {
		t.Error(d.LeftOut)
	}
}

// TestExplore checks the bounds, and the various ways in which a tool may answer.
func TestExplore(t *testing.T) {
	asked := 0
	endless := func(_ context.Context, args []string) (string, string, error) {
		asked++
		return "Usage: x\n\nCommands:\n  a  does " + strings.Join(args, " ") + "\n  b  does\n", "", nil
	}
	tree, err := Explore(context.Background(), Bounds{Depth: 16, Probes: 10}, endless)
	if err != nil || asked != 10 {
		t.Fatal(err, asked)
	}
	if leaves, left := tree.Leaves(); len(leaves) > 0 || len(left) != 11 {
		t.Errorf("%d leaves, %d left", len(leaves), len(left))
	}
	asked = 0
	if tree, _ = Explore(context.Background(), Bounds{Depth: 2, Probes: 100}, endless); asked != 7 || tree.Subs[0].Subs[0].Subs[0].Skipped == "" {
		t.Errorf("%d asked at depth 2, want 7", asked)
	}

	same := load(t, "systemctl").stdout["--help"]
	asked = 0
	always := func(context.Context, []string) (string, string, error) { asked++; return same, "", nil }
	tree, _ = Explore(context.Background(), Bounds{Depth: 16, Probes: 1000}, always)
	if leaves, left := tree.Leaves(); len(leaves) != 70 || len(left) > 0 || asked != 1+sameAlways {
		t.Errorf("a tool that always says the same has %d leaves, %d left, and was asked %d times", len(leaves), len(left), asked)
	}
	tree, _ = Explore(context.Background(), Bounds{Depth: 16, Probes: 1000}, func(ctx context.Context, args []string) (string, string, error) {
		if args[0] == "list-sockets" {
			return "Usage: systemctl list-sockets [-a]\n\n  -a  all\n", "", nil
		}
		return always(ctx, args)
	})
	if leaves, left := tree.Leaves(); len(leaves) != 1 || len(left) != 69 || !strings.Contains(left[0].Skipped, "of its parent command") {
		t.Errorf("one command has a help of its own, and %d have none but are leaves", len(leaves))
	}

	tree, _ = Explore(context.Background(), Bounds{Probes: 2}, func(_ context.Context, args []string) (string, string, error) {
		if args[0] == "-h" {
			return "", "x: bad word\nUsage: x [-v] FILE\n\n  -v  be loud\n", nil
		}
		return "unknown option --help", "", nil
	})
	if len(tree.Help.Options) != 1 || len(tree.Help.Operands) != 1 {
		t.Errorf("help on stderr behind -h: %+v", tree)
	}

	broken := errors.New("no cage")
	if _, err := Explore(context.Background(), Bounds{Probes: 2}, func(context.Context, []string) (string, string, error) { return "", "", broken }); err != broken {
		t.Error(err)
	}
}
