package onboard

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey/pack"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fixture holds the output of a real tool (testdata/README.md), by its arguments.
type fixture struct {
	stdout, stderr map[string]string
	always         bool // whatever the arguments, it answers as with --help
}

func load(t testing.TB, name string) fixture {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{map[string]string{}, map[string]string{}, name == "systemctl"}
	into, key := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		head, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- ")
		if head, end := strings.CutSuffix(head, " --"); ok && end {
			into, key = f.stdout, head
			if args, is := strings.CutPrefix(head, "stderr of "); is {
				into, key = f.stderr, args
			}
			continue
		}
		into[key] += line
	}
	return f
}

func (f fixture) probe(_ context.Context, args []string) (stdout, stderr string, err error) {
	key := strings.Join(args, " ")
	if f.always {
		key = "--help"
	}
	return f.stdout[key], f.stderr[key], nil
}

func draft(t testing.TB, tool string) (*Draft, *pack.Pack) {
	t.Helper()
	tree, err := Explore(context.Background(), Bounds{Depth: 3, Probes: 200}, load(t, tool).probe)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Tool{Name: tool, Command: tool, Root: tree})
	if err != nil {
		t.Fatal(err)
	}
	p, err := pack.Parse(tool+"/pack.yaml", d.YAML)
	if err != nil {
		t.Fatalf("%v\n%s", err, d.YAML)
	}
	return d, p
}

// TestFixtures checks that a pack drafted from each tool's output parses and equals the golden file.
func TestFixtures(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txtar")
	if len(files) < 10 {
		t.Fatalf("only %d fixtures", len(files))
	}
	for _, file := range files {
		tool := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if tool == "hyperfine" || tool == "tar" { // no draft, and a long one: see TestRunsPrograms and TestRendered
			continue
		}
		t.Run(tool, func(t *testing.T) {
			d, _ := draft(t, tool)
			golden := filepath.Join("testdata", tool+".yaml")
			if *update {
				if err := os.WriteFile(golden, d.YAML, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, d.YAML) {
				t.Errorf("the draft is not %s (go test -update writes it):\n%s", golden, d.YAML)
			}
		})
	}
}
