package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"bailey/internal/ktest"
	"bailey/internal/vm"
	"bailey/test/since"
)

// TestDebianBoots builds Debian with its packages from the network, and boots it: the agent answers, systemd and sshd run,
// and the machine has keys and an identity that are not in the image. The packages stay between runs, in the user's cache or
// the directory that BAILEY_IMAGE_STORE names.
func TestDebianBoots(t *testing.T) {
	ktest.Long(t)
	since.RequireDue(t, "internal/image", "internal/ext4", "internal/initramfs", "internal/guestagent")
	ktest.Require(t, "mmdebstrap", "qemu-img")
	dir := os.Getenv("BAILEY_IMAGE_STORE")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "bailey-test-images")
	}
	s := openStore(t, dir)
	maker := &Maker{Store: s, Agent: func(string) (string, error) { return buildAgent() }, Progress: func(step string) { t.Log(step) }}
	s.Remove("debian-test", nil)
	i, err := maker.Build(t.Context(), Build{Name: "debian-test", Recipe: Recipe{OS: "debian", Arch: "amd64"},
		Files: map[string]FileText{"/etc/motd": {Text: "planted\n", Mode: 0o644}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Remove("debian-test", nil) })
	t.Logf("%+v", i)
	guest := bootImage(t, i, vm.MicroVM)
	for _, c := range []struct{ line, want string }{
		{"cat /etc/motd", "planted\n"}, // the agent answers before systemd does
		{"until systemctl is-system-running 2>/dev/null | grep -Eq 'running|degraded'; do sleep 5; done", ""},
		{"cat /proc/1/comm", "systemd\n"}, {"systemctl list-units --failed --no-legend --plain", ""}, {"systemctl is-active ssh", "active\n"},
		{". /etc/os-release; echo $ID $VERSION_ID", "debian " + i.Release + "\n"}, {"ls /etc/ssh | grep -c host_ed25519_key.pub", "1\n"},
		{"df -k / | tail -n 1 | awk '{ print ($2 > 7000000) }'", "1\n"}, {"touch /x && sync && echo written", "written\n"},
		{"wc -c </etc/machine-id", "33\n"}, {"dpkg -s openssh-server | grep -c '^Status: install ok'", "1\n"},
		{"modprobe overlay && lsmod | grep -c ^overlay", "1\n"},
	} {
		begin := time.Now()
		if out, _ := runGuest(t, guest, c.line); out != c.want {
			t.Errorf("%s: %q", c.line, out)
		}
		t.Logf("%s: %v", c.line, time.Since(begin).Round(time.Millisecond))
	}
}
