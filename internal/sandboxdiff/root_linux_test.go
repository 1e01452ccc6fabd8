package sandboxdiff_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
	"bailey/internal/sandboxdiff"
)

// inRoot starts a shell in a root of its own: overlay $3 on the directories $2, with new namespaces, without network, and
// with /proc/sys read-only, so that no setting of the kernel can be changed.
const inRoot = `set -eu
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3/upper,workdir=$3/work" "$3/root"
if [ "$1" = inventory ]; then exec "$4" inventory "$3/root"; fi
cd "$3/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
for d in dev tmp run; do mount -t tmpfs -o size=64m tmpfs $d; done
mkdir dev/shm
for d in null zero urandom random full; do : >dev/$d; mount --bind /dev/$d dev/$d; done
exec chroot . /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 SYSTEMD_OFFLINE=1 "$1"
`

// root is a root file system of the tests: an overlay on others.
type root struct {
	t     testing.TB
	dir   string
	lower string
}

// newRoot returns a root above lower, a list of directories as overlayfs takes them.
func newRoot(t testing.TB, lower string) *root {
	t.Helper()
	r := &root{t, t.TempDir(), lower}
	for _, d := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(r.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// above returns the list of directories for a root above this one.
func (r *root) above() string { return filepath.Join(r.dir, "upper") + ":" + r.lower }

func (r *root) command(words ...string) ([]byte, []byte, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Minute)
	defer cancel()
	args := append([]string{"--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c", inRoot, "sh",
		words[0], r.lower, r.dir}, words[1:]...)
	c := exec.CommandContext(ctx, "unshare", args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, errors bytes.Buffer
	c.Stdout, c.Stderr = &out, &errors
	if words[0] != "inventory" {
		c.Stdin, c.Args = strings.NewReader(words[1]), c.Args[:len(c.Args)-len(words)+1]
	}
	err := c.Run()
	return out.Bytes(), errors.Bytes(), err
}

// run runs a script in the root and returns its output.
func (r *root) run(script string) string {
	r.t.Helper()
	out, errors, err := r.command("/bin/sh", script)
	if err != nil {
		r.t.Fatalf("%v\n%s\n%s\nof:\n%.4000s", err, out, errors, script)
	}
	return string(out) + string(errors)
}

// write writes a file of the root.
func (r *root) write(name string, data []byte) {
	r.t.Helper()
	at := filepath.Join(r.dir, "upper", name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(at, data, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// inventory returns the inventory as the guest's program prints it and the host reads it.
func (r *root) inventory(program string) *sandboxdiff.Inventory {
	r.t.Helper()
	out, errors, err := r.command("inventory", program)
	if err != nil {
		r.t.Fatalf("inventory: %v: %s", err, errors)
	}
	v, err := sandboxdiff.ReadInventory(bytes.NewReader(out))
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// guestProgram builds bailey-guest.
func guestProgram(t testing.TB) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "bailey-guest")
	c := exec.Command("go", "build", "-o", at, "bailey/cmd/bailey-guest")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return at
}

// debFile is a file of a package, with its mode.
type debFile struct {
	name, content string
	mode          os.FileMode
}

// buildDeb builds a package with the real dpkg-deb, and returns its entry in the repository's list.
func buildDeb(t testing.TB, repository, control string, files ...debFile) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	control += "Architecture: all\nMaintainer: Test <test@example.org>\nDescription: a package of a test\n"
	for _, f := range append([]debFile{{"DEBIAN/control", control, 0o644}}, files...) {
		at := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(f.content), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	var name, version string
	for line := range strings.Lines(control) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Package":
			name = value
		case "Version":
			version = value
		}
	}
	base := name + "_" + version + "_all.deb"
	deb := filepath.Join(repository, base)
	if out, err := exec.Command("dpkg-deb", "-Zgzip", "--root-owner-group", "--build", dir, deb).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, base, len(data), sha256.Sum256(data))
}

const greeterUnit = `[Unit]
Description=Greeter
[Service]
User=_greeter
ExecStart=/usr/bin/greeter
[Install]
WantedBy=multi-user.target
`

// greeterScript is what debhelper writes for a package with a user and a service.
const greeterScript = `#!/bin/sh
set -e
adduser --system --group --quiet --home /var/lib/greeter _greeter
deb-systemd-helper unmask greeter.service >/dev/null || true
if deb-systemd-helper --quiet was-enabled greeter.service; then
  deb-systemd-helper enable greeter.service >/dev/null
else
  deb-systemd-helper update-state greeter.service >/dev/null
fi
`

// preparedRoot returns a Debian with a repository of packages in /srv/repo, and a few things to change.
func preparedRoot(t testing.TB) *root {
	t.Helper()
	ktest.Require(t, "root", "unshare", "dpkg-deb")
	base := newRoot(t, ktest.Fetched(t, "debian-amd64"))
	repository := filepath.Join(base.dir, "upper/srv/repo")
	if err := os.MkdirAll(repository, 0o755); err != nil {
		t.Fatal(err)
	}
	list := buildDeb(t, repository, "Package: libgreeting\nVersion: 1:0.9~rc1-2\n", debFile{"usr/lib/greeting/words", "hello\n", 0o644})
	list += buildDeb(t, repository, "Package: greeter\nVersion: 2.0-1\nDepends: libgreeting, adduser\n",
		debFile{"usr/bin/greeter", "#!/bin/sh\nexec sleep infinity\n", 0o755}, debFile{"etc/greeter.conf", "word=hello\n", 0o644},
		debFile{"DEBIAN/conffiles", "/etc/greeter.conf\n", 0o644}, debFile{"lib/systemd/system/greeter.service", greeterUnit, 0o644},
		debFile{"DEBIAN/postinst", greeterScript, 0o755})
	for _, v := range []string{"1.0", "1.1"} {
		list += buildDeb(t, repository, "Package: oldtool\nVersion: "+v+"\n", debFile{"usr/bin/oldtool", "#!/bin/sh\necho " + v + "\n", 0o755},
			debFile{"etc/oldtool.conf", "version " + v + "\n", 0o644}, debFile{"DEBIAN/conffiles", "/etc/oldtool.conf\n", 0o644})
	}
	base.write("srv/repo/Packages", []byte(list))
	base.write("etc/apt/sources.list", []byte("deb [trusted=yes] file:/srv/repo ./\n"))
	base.run(`set -eu
apt-get -q update
apt-get -q -y install oldtool=1.0
useradd -m -u 1500 -s /bin/bash worker
mkdir -p /srv/data /opt/old/deep /etc/app
echo data >/srv/data/report; echo 1 >/opt/old/deep/a; echo 2 >/opt/old/b
printf 'port=80\nname=app\nlevel=info\n' >/etc/app/app.conf
printf '127.0.0.1 localhost\n' >/etc/hosts
`)
	return base
}
