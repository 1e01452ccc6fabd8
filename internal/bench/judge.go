package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

func (a *commands) benchJudgeVerb() *cobra.Command {
	var n int
	cmd := a.measureVerb(&cobra.Command{
		Use: "judge", Short: "Compare an answer to an agent's hook with the start of a program",
		Long: `Time bailey judge claude-code as an agent's hook starts it, from the start of the process to its
end, with a running gateway: for a file (row file), for a line of two commands (line), and for a command that
asks (asks). Row version is the start of this program alone, and row bare is /bin/true. The rows alternate in
one run, with a separate home on the disk of TMPDIR.`,
	}, func(ctx context.Context, _ []string) ([]Row, error) { return benchJudge(ctx, n) })
	cmd.Flags().IntVarP(&n, "n", "n", 200, "number of runs of each row")
	return cmd
}

func benchJudge(ctx context.Context, n int) ([]Row, error) {
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	project := filepath.Join(dir, "project")
	if err := os.Mkdir(project, 0o700); err != nil {
		return nil, err
	}
	self, err := measuredProgram()
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(), "BAILEY_HOME="+filepath.Join(dir, "home"))
	start := func(event []byte, name string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env, cmd.Stdin = project, env, bytes.NewReader(event)
		return cmd.Output()
	}
	defer start(nil, self, "gateway", "stop")
	event := func(tool, key, value string) []byte {
		// cannot fail
		b, _ := json.Marshal(map[string]any{"hook_event_name": "PreToolUse", "cwd": project, "tool_name": tool,
			"tool_input": map[string]string{key: value}})
		return b
	}
	const warm = 3
	times := map[string][]time.Duration{}
	for i := range n + warm {
		for _, row := range []struct {
			name  string
			event []byte
			want  string
			argv  []string
		}{
			{"bare", nil, "", []string{"true"}},
			{"version", nil, "", []string{self, "--version"}},
			{"file", event("Read", "file_path", filepath.Join(project, "x")), "allow",
				[]string{self, "judge", "claude-code"}},
			{"line", event("Bash", "command", "git status | head -3"), "allow", []string{self, "judge", "claude-code"}},
			{"asks", event("Bash", "command", "make"), "ask", []string{self, "judge", "claude-code"}},
		} {
			begun := time.Now()
			out, err := start(row.event, row.argv[0], row.argv[1:]...)
			took := time.Since(begun)
			if err != nil || !bytes.Contains(out, []byte(row.want)) {
				return nil, fmt.Errorf("%s: %q: %w", row.name, out, err)
			}
			if i >= warm {
				times[row.name] = append(times[row.name], took)
			}
		}
	}
	rows, _ := timeRows(times, "bare", "bare", "version", "file", "line", "asks")
	return rows, nil
}
