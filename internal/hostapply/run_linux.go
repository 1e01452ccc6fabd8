package hostapply

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"bailey"
)

// The kinds of content.
const (
	kindShell   = "shell"
	kindAnsible = "ansible"
)

// StepsVariable names the file to which a script of package sandboxdiff appends its steps.
const StepsVariable = "BAILEY_STEPS"

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxOutput is how many bytes of a program's output are kept.
const maxOutput = 2000

// job is one content that runs.
type job struct {
	dir, file string
	path      string // where programs are, instead of searchPath; in tests
	content   []byte
	kind      string
	env       []string
	command   []string
}

// prepare writes the content, and checks everything that it needs before its first task.
func (j *job) prepare() error {
	j.env = []string{"PATH=" + cmp.Or(j.path, searchPath), "HOME=/root", "LANG=C.UTF-8",
		"TMPDIR=" + j.dir, StepsVariable + "=" + filepath.Join(j.dir, "report")}
	files := map[string][]byte{"playbook": j.content, "report": nil}
	switch {
	case bytes.HasPrefix(j.content, []byte("#!/bin/sh\n")):
		j.kind, j.command = kindShell, []string{"/bin/sh", j.file}
	case bytes.HasPrefix(j.content, []byte("---\n")):
		j.kind = kindAnsible
		j.command = []string{"ansible-playbook", "-i", "localhost,", "-c", "local", "-e",
			"ansible_python_interpreter=/usr/bin/python3", j.file}
		files["ansible.cfg"], files["bailey_report.py"] = nil, []byte(reporter)
		j.env = append(j.env, "ANSIBLE_CONFIG="+filepath.Join(j.dir, "ansible.cfg"), "ANSIBLE_CALLBACK_PLUGINS="+j.dir,
			"ANSIBLE_CALLBACKS_ENABLED=bailey_report", "ANSIBLE_NOCOLOR=1", "ANSIBLE_RETRY_FILES_ENABLED=0",
			"ANSIBLE_LOCAL_TEMP="+filepath.Join(j.dir, "local"), "ANSIBLE_REMOTE_TEMP="+filepath.Join(j.dir, "remote"))
	default:
		return bailey.Invalid.New("the content is neither a playbook, which begins with ---, nor a script, which begins with #!/bin/sh",
			"send what bailey sandbox export wrote")
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(j.dir, name), data, 0o600); err != nil {
			return bailey.Unavailable.Wrap(err, "cannot write to "+j.dir, "free some space on the host")
		}
	}
	return j.checkNeeds()
}

// checkNeeds fails if the host lacks a program or a module that a task needs, so that no task runs. It evaluates
// nothing of the content: Ansible checks a playbook itself before the first task, but evaluates
// templates of imports for that.
func (j *job) checkNeeds() error {
	if j.kind == kindShell {
		if out, err := j.runTool("/bin/sh", "-n", j.file); err != nil {
			return bailey.Invalid.New("/bin/sh refuses the script: "+out,
				"send what bailey sandbox export --shell wrote")
		}
		return nil
	}
	const hint = "install ansible-core on the host, or apply what bailey sandbox export --shell writes"
	if out, err := j.runTool("ansible-playbook", "--version"); err != nil {
		return bailey.Unavailable.Errorf(hint,
			"this host has no ansible-playbook that works; no task has run: %v %s", err, out)
	}
	if bytes.Contains(j.content, []byte("ansible.builtin.apt:")) {
		if out, err := j.runTool("/usr/bin/python3", "-c", "import apt"); err != nil {
			return bailey.Unavailable.Errorf("install python3-apt on the host",
				"this host lacks python3-apt, which tasks need; no task has run: %v %s", err, out)
		}
	}
	return nil
}

// outputWait is how long the output of a program is read after the program ended. A service that it started may keep
// the output open, and would otherwise hold the lock of the host.
const outputWait = 3 * time.Second

// runTool returns the end of what a program prints.
func (j *job) runTool(name string, args ...string) (string, error) {
	c, err := j.programOf(name, args)
	if err != nil {
		return "", err
	}
	var out tail
	c.Stdout, c.Stderr, c.WaitDelay = &out, &out, outputWait
	if err = c.Run(); errors.Is(err, exec.ErrWaitDelay) { // the program itself succeeded
		err = nil
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(out), "?")), err
}

// tail keeps the last bytes that are written to it.
type tail []byte

func (t *tail) Write(b []byte) (int, error) {
	*t = append(*t, b[max(0, len(b)-maxOutput):]...)
	*t = append((*t)[:0], (*t)[max(0, len(*t)-maxOutput):]...)
	return len(b), nil
}

// programOf returns a program of the fixed search path, in a session of its own: the end of the connection does not
// reach it.
func (j *job) programOf(name string, args []string) (*exec.Cmd, error) {
	if !filepath.IsAbs(name) {
		found := ""
		for _, dir := range filepath.SplitList(strings.TrimPrefix(j.env[0], "PATH=")) {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() &&
				info.Mode()&0o111 != 0 {
				found = filepath.Join(dir, name)
				break
			}
		}
		if found == "" {
			return nil, fmt.Errorf("%s is not installed", name)
		}
		name = found
	}
	c := exec.Command(name, args...)
	c.Env, c.Dir = j.env, j.dir
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c, nil
}

// run runs the content and reports each task.
func (j *job) run() Report {
	r := Report{Kind: j.kind, Changed: []string{}, Unchanged: []string{}, Failed: []string{}, NotReached: []string{}}
	out, err := j.runTool(j.command[0], j.command[1:]...)
	lines, readErr := os.ReadFile(filepath.Join(j.dir, "report"))
	if r.OK = err == nil && readErr == nil; !r.OK {
		r.Output = out
	}
	if j.kind == kindShell {
		r.readSteps(lines, err != nil)
	} else {
		r.readTasks(lines)
	}
	if r.OK && len(r.Failed)+len(r.NotReached) > 0 {
		r.OK, r.Output = false, out
	}
	return r
}

// readSteps reads the lines "NUMBER TOTAL NAME" that a script writes before each step.
func (r *Report) readSteps(lines []byte, failed bool) {
	number, total, name := 0, 0, ""
	for line := range strings.Lines(string(lines)) {
		var n, of int
		words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if _, err := fmt.Sscan(line, &n, &of); err != nil || n != number+1 || len(words) != 3 {
			continue
		}
		if name != "" {
			r.Changed = append(r.Changed, name)
		}
		number, total = n, of
		name = cleanName(words[2])
	}
	switch {
	case name == "":
	case failed:
		r.Failed = append(r.Failed, name)
	default:
		r.Changed = append(r.Changed, name)
	}
	if failed && number < total {
		r.NotReached = append(r.NotReached, fmt.Sprintf("steps %d to %d", number+1, total))
	}
}

// readTasks reads the lines of the plugin.
func (r *Report) readTasks(lines []byte) {
	var planned []string
	scanner := bufio.NewScanner(bytes.NewReader(lines))
	scanner.Buffer(nil, 4<<20)
	for scanner.Scan() {
		var line struct {
			Tasks       []string
			Task, State string
		}
		if json.Unmarshal(scanner.Bytes(), &line) != nil {
			continue
		}
		planned = append(planned, line.Tasks...)
		name := cleanName(line.Task)
		switch line.State {
		case "changed":
			r.Changed = append(r.Changed, name)
		case "ok", "skipped":
			r.Unchanged = append(r.Unchanged, name)
		case "ignored":
			r.Ignored = append(r.Ignored, name)
		case "failed":
			r.Failed = append(r.Failed, name)
		default:
			continue
		}
		if i := slices.Index(planned, line.Task); i >= 0 {
			planned = slices.Delete(planned, i, i+1)
		}
	}
	for _, name := range planned {
		r.NotReached = append(r.NotReached, cleanName(name))
	}
}

// cleanName returns a name of bounded length without control characters.
func cleanName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}
