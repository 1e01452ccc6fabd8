package sandboxdiff

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// smallInventory has one of everything.
func smallInventory() *Inventory {
	text := Text("port=80\n")
	return &Inventory{Version: Version, OS: "debian", Release: "12",
		Files: []File{
			{Path: "/etc", Type: Directory, Mode: 0o755, Owner: "root", Group: "root", Package: "base-files"},
			{Path: "/etc/app\xff", Type: Link, Mode: 0o777, Owner: "root", Group: "7", Target: "\xfe"},
			{Path: "/etc/app.conf", Type: Regular, Mode: 0o644, Owner: "root", Group: "root", Size: 8, SHA256: digestOf(string(text)), Content: &text},
		},
		Packages: []Package{{Name: "base-files", Version: "1:2~rc1-3", Accounts: []string{"adm", "staff"}}},
		Services: []Service{{Name: "ssh.service", State: Enabled, Wanted: []string{"multi-user.target"}, Package: "base-files", Default: Enabled}},
		Users:    []User{{Name: "dev", UID: 1000, Group: "dev", Groups: []string{"adm"}, Home: "/home/dev", Shell: "/bin/sh", Password: PasswordLocked}},
		Groups:   []Group{{Name: "dev", GID: 1000}}, Omitted: []Omitted{{Path: "/x", Reason: "it changes"}}}
}

func written(t testing.TB, v *Inventory) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := v.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestReadInventory checks that an inventory is read as it was written, and which ones are refused.
func TestReadInventory(t *testing.T) {
	v := smallInventory()
	v.Files[1], v.Files[2] = v.Files[2], v.Files[1]
	got, err := ReadInventory(bytes.NewReader(written(t, v)))
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Fatalf("%v: %+v", err, got)
	}
	document := string(written(t, v))
	for name, hostile := range map[string]string{
		"empty":       "",
		"truncated":   document[:len(document)-10],
		"two values":  document + document,
		"not UTF-8":   strings.Replace(document, "debian", "deb\xff", 1),
		"extra key":   strings.Replace(document, `"os"`, `"more":1,"os"`, 1),
		"twice":       strings.Replace(document, `"os"`, `"os":"x","os"`, 1),
		"version":     strings.Replace(document, `"version":1`, `"version":2`, 1),
		"release":     strings.Replace(document, `"release":"12"`, `"release":"1\n2"`, 1),
		"climbs":      strings.Replace(document, `"/etc/app.conf"`, `"/etc/../app.conf"`, 1),
		"relative":    strings.Replace(document, `"/etc/app.conf"`, `"etc/app.conf"`, 1),
		"zero byte":   strings.Replace(document, `"/etc/app.conf"`, `"/etc/app.conf\u0000"`, 1),
		"not sorted":  strings.Replace(document, `"/etc/app.conf"`, `"/a"`, 1),
		"type":        strings.Replace(document, `"type":"link"`, `"type":"socket"`, 1),
		"mode":        strings.Replace(document, `"mode":420`, `"mode":4096`, 1),
		"content":     strings.Replace(document, `port=80`, `port=81`, 1),
		"base64":      strings.Replace(document, `{"base64":"`, `{"base64":"*`, 1),
		"no base64":   strings.Replace(document, `{"base64":`, `{"BASE":`, 1),
		"package":     strings.Replace(document, `"name":"base-files"`, `"name":"--purge"`, 1),
		"release ver": strings.Replace(document, `1:2~rc1-3`, `1 || id`, 1),
		"service":     strings.Replace(document, `"ssh.service"`, `"-H"`, 1),
		"state":       strings.Replace(document, `"state":"enabled"`, `"state":"running"`, 1),
		"user":        strings.Replace(document, `"name":"dev","uid"`, `"name":"-o","uid"`, 1),
		"comment":     strings.Replace(document, `"home":"/home/dev"`, `"home":"/home:/x"`, 1),
		"shell":       strings.Replace(document, `"shell":"/bin/sh"`, `"shell":"sh"`, 1),
		"password":    strings.Replace(document, `"password":"locked"`, `"password":"$6$x"`, 1),
		"group":       strings.Replace(document, `"name":"dev","gid"`, `"name":"a b","gid"`, 1),
		"deep":        strings.Replace(document, `"/etc/app.conf"`, `"/etc`+strings.Repeat("/x", 100)+`"`, 1),
		"nested":      strings.Repeat("[", 10_000),
	} {
		if hostile == document {
			t.Errorf("%s: the document is unchanged", name)
		}
		if got, err := ReadInventory(strings.NewReader(hostile)); err == nil {
			t.Errorf("%s: read %+v", name, got)
		}
	}
	if _, err := ReadInventory(bytes.NewReader(make([]byte, maxDocument+2))); err == nil || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("a document of %d bytes: %v", maxDocument+2, err)
	}
}

// FuzzInventory checks that no document of a hostile sandbox breaks the reader, the comparison or the exports, and that
// an accepted one is written as it was read.
func FuzzInventory(f *testing.F) {
	v := smallInventory()
	v.Files[1], v.Files[2] = v.Files[2], v.Files[1]
	f.Add(written(f, v))
	f.Add([]byte(`{"version":1,"os":"alpine","release":"","files":[],"packages":[],"services":[],"users":[],"groups":[],"omitted":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ReadInventory(bytes.NewReader(data))
		if err != nil {
			return
		}
		again, err := ReadInventory(bytes.NewReader(written(t, got)))
		if err != nil {
			t.Fatalf("written, it is not read: %v", err)
		}
		if d := Compare(got, again); len(d.Changes) > 0 {
			t.Errorf("differs from itself: %+v", d.Changes)
		}
		for _, d := range []*Difference{Compare(v, got), Compare(got, v), Compare(&Inventory{}, got)} {
			if _, err := json.Marshal(d); err != nil {
				t.Error(err)
			}
			if hasControl(strings.NewReplacer("\n", "", "\t", "").Replace(string(d.Ansible()))) {
				t.Errorf("a playbook has control characters: %q", d.Ansible())
			}
			d.Shell()
			for _, c := range d.Changes {
				if hasControl(c.Name) || hasControl(c.Summary) {
					t.Errorf("control characters in %q, %q", c.Name, c.Summary)
				}
			}
		}
	})
}

// TestUnified compares the difference with that of diff -u, which a reader knows.
func TestUnified(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"", "", ""},
		{"a\n", "a\n", ""},
		{"", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nx\n6\n7\n8\n9\n", "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n"},
		{"a\n", "a", "@@ -1,1 +1,1 @@\n-a\n+a\\ no newline at the end\n"},
		{"a\x1b[2J\n", "b\n", ""},
		{"a\n", "\u202eb\n", ""},
	} {
		if got := unifiedDiff(c.before, c.after); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.before, c.after, got, c.want)
		}
	}
	long := strings.Repeat("line\n", 100_000)
	if got := unifiedDiff(long, strings.Repeat("other\n", 100_000)); len(got) > 2*maxDiff {
		t.Errorf("%d bytes", len(got))
	}
}
