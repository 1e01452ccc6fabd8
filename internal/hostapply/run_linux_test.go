package hostapply

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// TestReadReport reads what scripts and Ansible report, also if they were ended or the content lies.
func TestReadReport(t *testing.T) {
	for _, c := range []struct {
		lines                       string
		failed                      bool
		changed, broken, notReached []string
	}{
		{"", false, nil, nil, nil},
		{"1 2 a b\n2 2 c\n", false, []string{"a b", "c"}, nil, nil},
		{"1 3 a\n2 3 b\n", true, []string{"a"}, []string{"b"}, []string{"steps 3 to 3"}},
		{"9 9 jump\nx\n1 2 a\x1b[2J\n1 2 again\n", true, nil, []string{"a?[2J"}, []string{"steps 2 to 2"}},
		{"1 1\n", false, nil, nil, nil},
	} {
		var r Report
		r.readSteps([]byte(c.lines), c.failed)
		if !slices.Equal(r.Changed, c.changed) || !slices.Equal(r.Failed, c.broken) || !slices.Equal(r.NotReached, c.notReached) {
			t.Errorf("%q: %+v", c.lines, r)
		}
	}
	var r Report
	r.readTasks([]byte(`{"tasks":["a","b","c","d","e","e"]}
{"task":"a","state":"changed"}
{"task":"b","state":"ok"}
no JSON
{"task":"c","state":"ignored"}
{"task":"e","state":"skipped"}
{"task":"d","state":"failed"}
`))
	if strings.Join(r.Changed, ",")+"|"+strings.Join(r.Unchanged, ",")+"|"+strings.Join(r.Ignored, ",")+"|"+strings.Join(r.Failed, ",")+"|"+
		strings.Join(r.NotReached, ",") != "a|b,e|c|d|e" {
		t.Errorf("%+v", r)
	}
}

// TestApplyOnce checks as an ordinary user what root checks on a host: the lock, and that a refusal uses nothing up.
func TestApplyOnce(t *testing.T) {
	dir := t.TempDir()
	p := program{hostFile: filepath.Join(dir, "host"), state: filepath.Join(dir, "state"), now: time.Now, out: &bytes.Buffer{}, unprivileged: true}
	content := []byte("#!/bin/sh\ntrue\n")
	r := goodRequest()
	r.SHA256, r.Until = Digest(content), time.Now().Add(time.Minute)
	if _, err := p.apply(r, bytes.NewReader(content)); err == nil || !strings.Contains(err.Error(), "not prepared") {
		t.Errorf("without a preparation: %v", err)
	}
	if err := os.WriteFile(p.hostFile, []byte(r.Host+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.apply(r, strings.NewReader(string(content)+"#\n")); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("another content: %v", err)
	}
	for says, change := range map[string]func(*Request){
		"for another host": func(r *Request) { r.Host = HostID([]byte("other")) },
		"is over":          func(r *Request) { r.Until = time.Now().Add(-time.Second) },
		"too far ahead":    func(r *Request) { r.Until = time.Now().Add(2 * maxAhead) },
	} {
		other := r
		change(&other)
		if _, err := p.apply(other, bytes.NewReader(content)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	unlock, err := p.lockState()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.apply(r, bytes.NewReader(content)); err == nil || !strings.Contains(err.Error(), "another playbook runs") {
		t.Errorf("two at once: %v", err)
	}
	unlock()
	if report, err := p.apply(r, bytes.NewReader(content)); err != nil || !report.OK || report.SHA256 != r.SHA256 {
		t.Errorf("%+v %v", report, err)
	}
	if _, err := p.apply(r, bytes.NewReader(content)); err == nil || !strings.Contains(err.Error(), "used before") {
		t.Errorf("the second time: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(p.state, "work-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestOutputOfServices checks that a service that keeps the output open does not hold the host, and that only the end of
// a long output is kept.
func TestOutputOfServices(t *testing.T) {
	ktest.Long(t)
	dir := t.TempDir()
	j := &job{dir: dir, file: filepath.Join(dir, "playbook"), content: []byte("#!/bin/sh\necho $$ >group\n" +
		"printf '%09999d\\nstarted' 0\n(sleep 60; touch ended) &\n")}
	if err := j.prepare(); err != nil {
		t.Fatal(err)
	}
	out, err := j.runTool(j.command[0], j.command[1:]...)
	if _, ended := os.Stat(filepath.Join(dir, "ended")); err != nil || ended == nil {
		t.Errorf("%v, or the end of the service was awaited", err)
	}
	if len(out) != maxOutput || !strings.HasSuffix(out, "0\nstarted") {
		t.Errorf("%d bytes: …%q", len(out), out[max(0, len(out)-20):])
	}
	group, _ := os.ReadFile(filepath.Join(dir, "group"))
	if n, err := strconv.Atoi(strings.TrimSpace(string(group))); err != nil || syscall.Kill(-n, syscall.SIGKILL) != nil {
		t.Errorf("the service does not run: %q", group)
	}
}

// TestRefusedPlaybook checks that Ansible evaluates a playbook once for each approval, also if it then refuses it: it
// evaluates templates of imports while it reads a playbook. The program of this test does so in place of Ansible.
func TestRefusedPlaybook(t *testing.T) {
	dir := t.TempDir()
	p := program{hostFile: filepath.Join(dir, "host"), state: filepath.Join(dir, "state"), now: time.Now, path: dir}
	content := []byte("---\n- import_playbook: \"{{ lookup('pipe','id') }}\"\n")
	r := goodRequest()
	r.SHA256, r.Until = Digest(content), time.Now().Add(time.Minute)
	evaluated := filepath.Join(dir, "evaluated")
	ansible := "#!/bin/sh\n[ \"$1\" = --version ] && exit\necho yes >>" + evaluated + "\necho refused >&2\nexit 4\n"
	if err := errors.Join(os.WriteFile(p.hostFile, []byte(r.Host+"\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "ansible-playbook"), []byte(ansible), 0o700)); err != nil {
		t.Fatal(err)
	}
	report, err := p.apply(r, bytes.NewReader(content))
	if err != nil || report.OK || report.Output != "refused" {
		t.Errorf("%+v %v", report, err)
	}
	if _, err := p.apply(r, bytes.NewReader(content)); err == nil || !strings.Contains(err.Error(), "used before") {
		t.Errorf("the second time: %v", err)
	}
	if got, err := os.ReadFile(evaluated); string(got) != "yes\n" {
		t.Errorf("evaluated: %q %v", got, err)
	}
}
