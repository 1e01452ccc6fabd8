package hooks

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/hook"
	"bailey/internal/ktest"
)

// TestLesserHost checks that without namespaces a hook gets the lesser cage, or is not started.
func TestLesserHost(t *testing.T) {
	if os.Getenv("BAILEY_HOOKS_LESSER") == "" {
		withoutNamespaces(t)
		return
	}
	y := newYard(t)
	h := hook.Hook{Event: hook.OnPreToolUse, Argv: []string{"sh", "-c", "cat " + y.home + "/secret >&2 || exit 2"}, Timeout: hook.DefaultTimeout}
	if err := os.WriteFile(filepath.Join(y.home, "secret"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Argv[2] = `read x < ` + y.home + `/secret && exit 3; read x < /etc/resolv.conf; echo '{"systemMessage": "works"}'`
	o, a := y.try(t, h)
	if o.Effect != hook.Kept || o.Message != "works" || a.Status != PartiallyEnforced {
		t.Errorf("%+v %s %s", o, a.Status, a.Reason)
	}
	if w := of("hook.sandbox", a.Warning); len(w) != 1 || !strings.Contains(w[0].Text, "namespaces") || w[0].Hint == "" {
		t.Errorf("%+v", w)
	}
	mark := filepath.Join(y.home, "state", "ran")
	h = y.shell(t, "echo > "+mark)
	o, a = y.try(t, h)
	if o.Effect != hook.Blocked || a.Status != "" || !strings.Contains(o.Hint, "host with namespaces") {
		t.Errorf("a program of the user's own: %+v %s", o, a.Status)
	}
	h.Unsandboxed = true
	if o, a := y.try(t, h); o.Effect != hook.Kept || a.Status != Disabled {
		t.Errorf("%+v %s", o, a.Status)
	}
}

// withoutNamespaces runs the test again in a user namespace that allows no further ones.
func withoutNamespaces(t *testing.T) {
	ktest.Require(t, "userns", "landlock", "unshare", "setpriv")
	dir, err := os.MkdirTemp("/var/tmp", "bailey-hooks-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	self := filepath.Join(dir, "hooks.test")
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(self, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"unshare", "-U", "--map-current-user", "--keep-caps", "sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"`,
		self, "-test.run=^" + t.Name() + "$", "-test.v"}
	if os.Geteuid() == 0 {
		words = append([]string{"setpriv", "--reuid", "31337", "--regid", "31337", "--clear-groups"}, words...)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "BAILEY_HOOKS_LESSER=1", "TMPDIR=/tmp"}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}
