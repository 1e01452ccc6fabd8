package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

const unitFile = "../../../packaging/systemd/bailey-broker.service"

// unit reads the settings of a section, each with all its values.
func unit(t *testing.T, name, section string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got, in := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			in = strings.Trim(line, "[]")
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok {
				t.Fatalf("the line %q is none of a unit", line)
			}
			if in == section {
				got[key] = append(got[key], value)
			}
		}
	}
	return got
}

// TestUnit checks the restrictions of the unit: its own user, directories that no other user can enter or write, no
// core files, and only the system access that a socket and HTTPS need.
func TestUnit(t *testing.T) {
	got := unit(t, unitFile, "Service")
	for key, want := range map[string]string{
		"User": "bailey-broker", "StateDirectory": "bailey-broker", "StateDirectoryMode": "0700", "RuntimeDirectory": "bailey-broker", "RuntimeDirectoryMode": "0755",
		"UMask": "0077", "LimitCORE": "0", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes",
		"MemoryDenyWriteExecute": "yes", "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6", "RestrictNamespaces": "yes", "CapabilityBoundingSet": "",
		"SystemCallArchitectures": "native", "LockPersonality": "yes",
	} {
		if v := got[key]; !slices.Equal(v, []string{want}) {
			t.Errorf("%s is %q, want %q", key, v, want)
		}
	}
	if f := got["SystemCallFilter"]; len(f) == 0 || !strings.HasPrefix(f[0], "@system-service") || !strings.Contains(strings.Join(f, " "), "@debug") {
		t.Errorf("SystemCallFilter is %q", f)
	}
	if e := got["ExecStart"]; len(e) != 1 || !strings.Contains(e[0], "--dir /var/lib/bailey-broker --socket /run/bailey-broker/") {
		t.Errorf("ExecStart is %q: the directories are others than the unit makes", e)
	}
	users, err := os.ReadFile("../../../packaging/sysusers.d/bailey-broker.conf")
	if err != nil || !strings.Contains(string(users), "\nu bailey-broker ") {
		t.Errorf("%s %v", users, err)
	}
}

// TestUnitVerifies checks that systemd accepts the unit.
func TestUnitVerifies(t *testing.T) {
	ktest.Require(t, "systemd-analyze")
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // with an existing program and user
	lines := strings.ReplaceAll(strings.ReplaceAll(string(text), "/usr/bin/bailey-broker", "/bin/true"), "=bailey-broker\nGroup", "=root\nGroup")
	file := filepath.Join(dir, "bailey-broker.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(lines, "Group=bailey-broker", "Group=root")), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("systemd-analyze", "verify", "--man=no", file)
	cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning")
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "bailey-broker.service:") && !strings.Contains(line, "Failed to create") {
			t.Errorf("%s", line)
		}
	}
	if err != nil {
		t.Logf("%v\n%s", err, out) // on a machine that was not booted with systemd
	}
}
