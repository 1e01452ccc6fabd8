package sandboxdiff

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// makeRoot writes files below a new directory; a name that ends in / is a directory, a content "-> X" is a link.
func makeRoot(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch target, isLink := strings.CutPrefix(content, "-> "); {
		case isLink:
			err = os.Symlink(target, at)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// collected collects a root, which the host's reader must accept.
func collected(t testing.TB, root string) *Inventory {
	t.Helper()
	v, err := Collect(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadInventory(bytes.NewReader(written(t, v))); err != nil {
		t.Fatalf("the reader refuses what the collector wrote: %v", err)
	}
	return v
}

// TestCollectHostile collects a root that its owner made to mislead: names, loops, links out of it, pipes, deep
// directories and broken records.
func TestCollectHostile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	odd := "srv/new\nline\x1b[2J\xff'\"{{x}}"
	root := makeRoot(t, map[string]string{
		odd: "odd", "srv/loop": "-> loop", "srv/a": "-> b", "srv/b": "-> a", "srv/self": "-> ../srv", "etc/passwd": "-> " + outside,
		"etc/hosts": "-> /etc/hosts", "usr/lib/os-release": "ID=\"de\x1bbian\"\nVERSION_ID=12\n", "etc/shadow": "dev:$6$hash:1:0:99999:7:::\n",
		"etc/group":            "good:x:1000:\nbad\n-o:x:0:\na:b:c:d:e\nbig:x:99999999999:\n\nraw\xff:x:5:\n",
		"var/lib/dpkg/status":  "Package: ../../x\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n\nPackage: ok\nStatus: install ok installed\nVersion: $(id)\n",
		"lib/apk/db/installed": "P:--x\nV:1\n\nF:../..\nR:../../etc\nZ:Q1!!\n", "proc/1/mem": "x", "etc/systemd/system/x.wants": "-> /",
		"etc/systemd/system/evil;id.service": "-> /dev/null", "etc/systemd/system/dot.wants/a.service": "-> /tmp/a.service",
		"a/" + strings.Repeat("d/", 100) + "f": "deep",
	})
	if err := syscall.Mkfifo(filepath.Join(root, "srv/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "etc/sudoers"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := collected(t, root)
	var names []string
	for _, f := range v.Files {
		names = append(names, string(f.Path))
		if f.Content != nil && strings.Contains(string(*f.Content), "outside") || strings.HasPrefix(string(f.Path), "/proc") {
			t.Errorf("listed: %+v", f)
		}
	}
	for _, want := range []string{"/" + odd, "/srv/loop", "/srv/self", "/srv/pipe", "/etc/hosts", "/etc/systemd/system/dot.wants/a.service",
		"/etc/systemd/system/evil;id.service"} {
		if !slices.Contains(names, want) {
			t.Errorf("%q is not listed", want)
		}
	}
	if len(v.Packages)+len(v.Users)+len(v.Services) > 0 || len(v.Groups) != 1 || v.OS != "" || v.Release != "12" {
		t.Errorf("packages %v, users %v, groups %v, services %v, system %q %q", v.Packages, v.Users, v.Groups, v.Services, v.OS, v.Release)
	}
	if !slices.ContainsFunc(v.Omitted, func(o Omitted) bool { return strings.Contains(o.Reason, "too long") }) ||
		!slices.ContainsFunc(v.Omitted, func(o Omitted) bool { return o.Path == "/etc/passwd" }) {
		t.Errorf("omitted: %v", v.Omitted)
	}
}

// TestCollectChanging collects a root while its files change. It must end, and list each file with a digest of its
// content, or not at all.
func TestCollectChanging(t *testing.T) {
	ktest.Long(t)
	root := makeRoot(t, map[string]string{"srv/grows": "", "srv/still": "still"})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			at := filepath.Join(root, "srv/grows")
			os.WriteFile(at, bytes.Repeat([]byte("x"), i%1000*100), 0o644)
			os.Remove(filepath.Join(root, "srv/goes"))
			os.Symlink("/etc/passwd", filepath.Join(root, "srv/goes"))
			os.Remove(filepath.Join(root, "srv/goes"))
			os.WriteFile(filepath.Join(root, "srv/goes"), []byte("inside"), 0o644)
		}
	}()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		v := collected(t, root)
		if findFile(v.Files, "/srv/still") == nil {
			t.Error("a file that does not change is missing")
		}
		if f := findFile(v.Files, "/srv/goes"); f != nil && f.Content != nil && *f.Content != "inside" && *f.Content != "" {
			t.Errorf("read %q", *f.Content)
		}
	}
	close(stop)
	<-stopped
}

// TestCollectLimits checks that too many files are an error that names the directory.
func TestCollectLimits(t *testing.T) {
	c := &collector{v: &Inventory{}}
	for range maxOmitted + 5 {
		c.omitPath(strings.Repeat("x", 2*maxPath), strings.Repeat("é", maxField))
	}
	if v := c.finishList(); len(v.Omitted) != maxOmitted+1 || len(v.Omitted[0].Path) > maxPath {
		t.Errorf("%d omitted", len(v.Omitted))
	}
	if _, err := Collect(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("collected a missing directory")
	}
	large := makeRoot(t, map[string]string{"srv/a": strings.Repeat("x", maxContent+1), "srv/b": "small"})
	v := collected(t, large)
	if a, b := findFile(v.Files, "/srv/a"), findFile(v.Files, "/srv/b"); a.Content != nil || b.Content == nil || a.SHA256 == "" {
		t.Errorf("large %+v, small %+v", a, b)
	}
	d := Compare(&Inventory{}, v)
	if len(d.Notes) != 1 || !strings.Contains(d.Notes[0], "/srv/a") || strings.Contains(string(d.Shell()), "put '/srv/a'") {
		t.Errorf("notes %q", d.Notes)
	}
}

// TestAlpine collects what apk and OpenRC write, and exports it for them. It shows the commands; no Alpine runs them.
func TestAlpine(t *testing.T) {
	files := map[string]string{"etc/os-release": "ID=alpine\nVERSION_ID=3.22.0\n", "etc/apk/world": "alpine-base\n",
		"lib/apk/db/installed": "P:alpine-base\nV:3.22.0-r0\n\n", "etc/init.d/sshd": "#!/sbin/openrc-run\n", "etc/runlevels/default/": "",
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/shadow": "root:*::0:::::\n", "etc/group": "root:x:0:root\n"}
	before := collected(t, makeRoot(t, files))
	// Z is the SHA-1 of the content in base64, as apk writes it.
	files["lib/apk/db/installed"] += "P:tool\nV:1.0-r1\nF:usr/bin\nR:tool\nZ:Q1Mm2QYmeIhqHqSSp5Rd7iOWdy78U=\n\n"
	files["etc/apk/world"] += "tool=1.0-r1\n"
	files["usr/bin/tool"], files["usr/bin/other"] = "tool\n", "other\n"
	files["etc/runlevels/default/sshd"] = "-> /etc/init.d/sshd"
	d := Compare(before, collected(t, makeRoot(t, files)))
	var got []string
	for _, c := range d.Changes {
		got = append(got, string(c.Kind)+" "+c.Name)
	}
	if want := []string{"package tool", "file /usr/bin/other", "service sshd"}; !slices.Equal(got, want) {
		t.Errorf("named %q, want %q", got, want)
	}
	for _, want := range []string{"apk add 'tool=1.0-r1'", "rc-update add 'sshd' 'default'"} {
		if !strings.Contains(string(d.Shell()), want) {
			t.Errorf("the script lacks %q", want)
		}
	}
	if !strings.Contains(string(d.Ansible()), `["apk", "add", "tool=1.0-r1"]`) && !strings.Contains(string(d.Ansible()), `!unsafe "tool=1.0-r1"`) {
		t.Errorf("the playbook:\n%s", d.Ansible())
	}
}
