package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// Bailey finds out whether Claude Code asks it before each use of a tool by doing the same: it reads the same files and
// runs the line that they contain. The answer of another program does not count.

// hookPatience limits the time for one answer of the hook. Normally the hook takes milliseconds.
const hookPatience = 5 * time.Second

// settingsFile is one of the files from which Claude Code reads hooks.
type settingsFile struct {
	path    string
	managed bool // controlled by the administrator of the machine
}

// settingsFiles returns the files that apply to a directory.
func settingsFiles(dir string) []settingsFile {
	var files []settingsFile
	for _, system := range managedDirs() {
		// cannot fail: the pattern is valid
		more, _ := filepath.Glob(filepath.Join(system, "managed-settings.d", "*.json"))
		for _, file := range append([]string{filepath.Join(system, "managed-settings.json")}, more...) {
			files = append(files, settingsFile{file, true})
		}
	}
	user := os.Getenv("CLAUDE_CONFIG_DIR")
	if home, err := os.UserHomeDir(); user == "" && err == nil {
		user = filepath.Join(home, ".claude")
	}
	if user != "" {
		files = append(files, settingsFile{filepath.Join(user, "settings.json"), false})
	}
	for _, name := range []string{"settings.json", "settings.local.json"} {
		files = append(files, settingsFile{filepath.Join(dir, ".claude", name), false})
	}
	return files
}

// hookLine returns the line of Bailey's hook that Claude Code runs before every use of a tool. The error says why there
// is none.
func hookLine(files []settingsFile, ours func(command string) bool) (string, error) {
	line, other := "", error(nil)
	onlyManaged := false
	for _, f := range files {
		text, err := ReadConfig(f.path)
		if err != nil {
			return "", fmt.Errorf("cannot read %s: %w", f.path, err)
		}
		if text == nil {
			continue
		}
		s, err := readHooks(text)
		switch {
		case err != nil:
			return "", fmt.Errorf("cannot parse the settings in %s: %w", f.path, err)
		case s.disabled:
			return "", fmt.Errorf("%s has disableAllHooks", f.path)
		case f.managed && s.onlyManaged:
			onlyManaged = true
		case onlyManaged && !f.managed:
			continue
		}
		for _, l := range s.lines {
			switch word, ok := judgeWord(l); {
			case ok && ours(word):
				line = l
			case !ok && strings.HasSuffix(l, oldJudge):
				other = fmt.Errorf("%s runs %q, which allows everything if that bailey is missing: run bailey init --claude-code --undo, then bailey init --claude-code", f.path, l)
			case ok || strings.Contains(l, "judge claude-code"):
				other = fmt.Errorf("%s runs %q, which is another program than this one", f.path, l)
			}
		}
	}
	switch {
	case line != "":
		return line, nil
	case other != nil:
		return "", other
	case onlyManaged:
		return "", errors.New("hooks are managed for this machine, and Bailey's is not among them")
	}
	return "", errors.New("none of its settings runs bailey judge before every tool")
}

// laterHooks returns the other commands that Claude Code runs before it uses a tool, with their files, behind Bailey's
// line. One of them can answer with updatedInput: then the tool gets an input that Bailey has not seen.
func laterHooks(files []settingsFile, line string) (later []string) {
	behind := false
	for _, f := range files {
		text, err := ReadConfig(f.path)
		if err != nil || text == nil {
			continue
		}
		s, err := readHooks(text)
		if err != nil {
			continue
		}
		for _, l := range s.all {
			switch {
			case l == line:
				behind = true
			case behind && l != "":
				later = append(later, fmt.Sprintf("%s runs %q", f.path, terminal.CutLine(l)))
			}
		}
	}
	return later
}

// hookSettings holds the relevant settings of one file.
type hookSettings struct {
	disabled, onlyManaged bool
	lines                 []string // run before every use of a tool
	all                   []string // run before the use of any tool
}

// readHooks matches keys by their exact names, as Claude Code does. A hook with an unknown key is not counted, because
// it might not block the tool.
func readHooks(text []byte) (s hookSettings, err error) {
	var top, hooks map[string]json.RawMessage
	var lists []map[string]json.RawMessage
	if err = json.Unmarshal(text, &top); err != nil {
		return s, err
	}
	for key, to := range map[string]any{"disableAllHooks": &s.disabled, "allowManagedHooksOnly": &s.onlyManaged,
		"hooks": &hooks} {
		if err = unmarshalKey(top, key, to); err != nil {
			return s, err
		}
	}
	if err = unmarshalKey(hooks, "PreToolUse", &lists); err != nil {
		return s, err
	}
	for _, list := range lists {
		var pattern string
		var commands []map[string]json.RawMessage
		if err = errors.Join(unmarshalKey(list, "matcher", &pattern),
			unmarshalKey(list, "hooks", &commands)); err != nil {
			return s, err
		}
		for _, c := range commands {
			var kind, line string
			known := len(c)
			for key, to := range map[string]any{"type": &kind, "command": &line, "timeout": new(float64),
				"statusMessage": new(string)} {
				if _, ok := c[key]; ok {
					known--
				}
				if err = unmarshalKey(c, key, to); err != nil {
					return s, err
				}
			}
			s.all = append(s.all, line)
			if (pattern == "" || pattern == "*") && kind == "command" && known == 0 {
				s.lines = append(s.lines, line)
			}
		}
	}
	return s, nil
}

func unmarshalKey(from map[string]json.RawMessage, key string, to any) error {
	raw, ok := from[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// judgeWord returns the command of a line that init could have written, if the line blocks the tool even when the
// program fails.
func judgeWord(line string) (string, bool) {
	word, ok := strings.CutSuffix(line, strings.TrimPrefix(judgeLine("/x"), "/x"))
	if inner, quoted := strings.CutPrefix(word, "'"); ok && quoted {
		word = strings.ReplaceAll(strings.TrimSuffix(inner, "'"), `'\''`, "'")
	}
	return word, ok && judgeLine(word) == line
}

// IsSelf reports whether a command is this program.
func IsSelf(command string) bool {
	path, err := exec.LookPath(command)
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	here, err2 := StatSelf()
	return err == nil && err2 == nil && os.SameFile(there, here)
}

// leftAlone stands for the answer {}: Claude Code then applies its own rules.
const leftAlone = "left to the agent"

// hookTrials are uses of tools for which no policy can change the answer.
var hookTrials = []struct {
	name, what, tool, input string
	want                    []string
}{
	// It makes no call, so no receipt looks like an attack.
	{"deny", "a shell without a command", "Bash", `{"command":""}`, []string{"deny"}},
	{"allow", "a to-do list", "TodoWrite", `{"todos":[]}`, []string{"allow", leftAlone}},
}

// tryHook runs the line as Claude Code does. The error describes a wrong answer.
func tryHook(ctx context.Context, line, dir string, patience time.Duration) (tried []apitype.Trial, err error) {
	for _, h := range hookTrials {
		said, why := askHook(ctx, line, dir, h.tool, h.input, patience)
		t := apitype.Trial{Name: "hook " + h.name, Held: slices.Contains(h.want, said),
			Tried: fmt.Sprintf("ran it for %s: %s", h.what, said)}
		if why != nil {
			t.Tried = fmt.Sprintf("ran it for %s: %v", h.what, why)
		}
		if tried = append(tried, t); !t.Held {
			return tried, fmt.Errorf("its hook should %s %s, but does not: %s", h.name, h.what, t.Tried)
		}
	}
	return tried, nil
}

// answerBytes limits how many bytes of an answer are read.
const answerBytes = 1 << 20

func askHook(ctx context.Context, line, dir, tool, input string, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	question, err := json.Marshal(map[string]any{"session_id": "bailey-status", "transcript_path": "", "cwd": dir, "permission_mode": "default",
		"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": json.RawMessage(input)})
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.WaitDelay = dir, append(os.Environ(),
		"CLAUDE_PROJECT_DIR="+dir), bytes.NewReader(question), patience
	var said, complaint limitedBuffer
	cmd.Stdout, cmd.Stderr = &said, &complaint
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("no answer within %v", patience)
	case errors.As(err, &exit) && exit.ExitCode() == 2: // Claude Code treats it as a denial
		return "deny", nil
	case err != nil:
		return "", fmt.Errorf("%w: %s", err, terminal.CutLine(strings.TrimSpace(complaint.String())))
	}
	var answer struct {
		Output struct {
			Event    string `json:"hookEventName"`
			Decision string `json:"permissionDecision"`
		} `json:"hookSpecificOutput"`
	}
	if strings.TrimSpace(said.String()) == "{}" {
		return leftAlone, nil
	}
	if err := json.Unmarshal(said.Bytes(), &answer); err != nil || answer.Output.Event != "PreToolUse" {
		return "", fmt.Errorf("it answered %s", terminal.CutLine(fmt.Sprintf("%.200q", said.String())))
	}
	if !slices.Contains([]string{"allow", "ask", "deny"}, answer.Output.Decision) {
		return "", fmt.Errorf("it decided %s", terminal.CutLine(fmt.Sprintf("%.200q", answer.Output.Decision)))
	}
	return answer.Output.Decision, nil
}

// limitedBuffer keeps the first answerBytes bytes that are written.
type limitedBuffer struct{ bytes.Buffer }

func (l *limitedBuffer) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), answerBytes-min(answerBytes, l.Len()))])
	return len(p), nil
}

// StatSelf returns the file information of the running program.
func StatSelf() (fs.FileInfo, error) {
	self, err := OwnFile()
	if err != nil {
		return nil, err
	}
	return os.Stat(self)
}

// configBytes limits a file of Claude Code. ~/.claude.json also contains history and grows.
const configBytes = 32 << 20

// ReadConfig reads a client's file. It returns nil if the file does not exist.
func ReadConfig(file string) ([]byte, error) {
	text, err := safefile.ReadNamed(file, configBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
