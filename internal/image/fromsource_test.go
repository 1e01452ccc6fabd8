package image

import (
	"crypto/md5"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"bailey"
)

func sumOf(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }

// testFacts are the answers of a host with a changed conffile, a file of its own, and much that belongs to the host.
func testFacts() Facts {
	f := Facts{Release: "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n",
		Packages: "dpkg\t1.21.22\tamd64\tii \nnginx\t1.22.1-9\tamd64\tii \nlinux-image-6.1.0-9-amd64\t6.1\tamd64\tii \nold\t1\tamd64\trc \n" +
			"wine32\t8\ti386\tii \ntzdata\t2024a\tall\tii \n--hook\t1\tall\tii \nvim\t2\tamd64\tii \n",
		Conffiles: " /etc/nginx/nginx.conf " + sumOf("default") + "\n /etc/nginx/mime.types " + sumOf("mime") + "\n",
		Links: "/etc/nginx/sites-enabled/app\t/etc/nginx/sites-available/app\n/etc/alternatives/vi\t/usr/bin/vim\n/etc/../x\ty\n" +
			"/usr/x\ty\n/etc/motd\t/run/motd\n"}
	for _, file := range []struct{ mode, owner, name, text string }{
		{"644", "0", "/etc/nginx/nginx.conf", "changed"}, {"644", "0", "/etc/nginx/mime.types", "mime"}, {"640", "33", "/etc/app.conf", "own"},
		{"600", "0", "/etc/secret.conf", "password=hunter2"}, {"644", "0", "/etc/machine-id", "x"}, {"644", "0", "/etc/passwd", "x"},
		{"4755", "0", "/etc/setuid", "x"}, {"644", "0", "/etc/../root/x", "x"}, {"644", "0", "/etc/binary", "x"}, {"644", "0", "/etc/large", "x"},
		{"zzz", "0", "/etc/mode", "x"},
	} {
		f.Files += file.mode + " " + file.owner + " " + file.name + "\n"
		f.Sums += sumOf(file.text) + "  " + file.name + "\n"
	}
	return f
}

// TestPlanSource checks which packages, files and links of a host an image gets, and that it says what it leaves out.
func TestPlanSource(t *testing.T) {
	p, err := PlanSource("web1", testFacts(), false, []string{"vim"})
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Build.Recipe; r.OS != "debian" || r.Release != "bookworm" || r.Arch != "amd64" || !slices.Equal(r.Packages, []string{"dpkg", "nginx", "tzdata"}) {
		t.Errorf("%+v", r)
	}
	texts := map[string]string{"/etc/nginx/nginx.conf": "changed", "/etc/app.conf": "own", "/etc/secret.conf": "password=[REDACTED_PASSWORD_1]",
		"/etc/binary": "\ufffd", "/etc/large": "x"}
	for _, f := range p.Read {
		text, ok := texts[f.Path]
		if !ok {
			t.Errorf("%s is read", f.Path)
		}
		p.AddFile(f, text, f.Path == "/etc/large")
	}
	if got := slices.Sorted(maps.Keys(p.Build.Files)); !slices.Equal(got, []string{"/etc/app.conf", "/etc/nginx/nginx.conf", "/etc/secret.conf"}) {
		t.Errorf("%q", got)
	}
	if f := p.Build.Files["/etc/app.conf"]; f.Mode != 0o640 || f.Text != "own" {
		t.Errorf("%+v", f)
	}
	if got := slices.Sorted(maps.Keys(p.Build.Links)); !slices.Equal(got, []string{"/etc/motd", "/etc/nginx/sites-enabled/app"}) {
		t.Errorf("%q", got)
	}
	left := fmt.Sprint(p.Left)
	for _, name := range []string{"package vim", "package linux-image", "package wine32", "package --hook", "/etc/setuid", "/etc/app.conf", "/etc/secret.conf", "/etc/binary", "/etc/large"} {
		if !strings.Contains(left, name) {
			t.Errorf("%s is not among what is left out: %s", name, left)
		}
	}
	exact, err := PlanSource("web1", testFacts(), true, nil)
	if err != nil || !slices.Contains(exact.Build.Recipe.Packages, "nginx=1.22.1-9") {
		t.Errorf("%+v, %v", exact, err)
	}
}

// TestPlanSourceRefuses checks hosts of which no image can be built.
func TestPlanSourceRefuses(t *testing.T) {
	many := testFacts()
	for i := range maxSourceFiles + 1 {
		many.Files += fmt.Sprintf("644 0 /etc/f%d\n", i)
		many.Sums += fmt.Sprintf("%s  /etc/f%d\n", sumOf(""), i)
	}
	other, release, none := testFacts(), testFacts(), testFacts()
	other.Release, release.Release, none.Packages = "ID=plan9\n", "ID=debian\nVERSION_CODENAME=--hook\n", ""
	for name, f := range map[string]Facts{"many": many, "system": other, "release": release, "packages": none, "empty": {}} {
		if _, err := PlanSource("web1", f, false, nil); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzSource checks that no answers of a host make a plan with a path outside /etc, or with a package that is an option.
func FuzzSource(f *testing.F) {
	facts := testFacts()
	f.Add(facts.Release, facts.Packages, facts.Conffiles, facts.Files, facts.Sums, facts.Links)
	f.Fuzz(func(t *testing.T, release, packages, conffiles, files, sums, links string) {
		p, err := PlanSource("h", Facts{release, packages, conffiles, files, sums, links}, false, nil)
		if err != nil {
			return
		}
		for _, r := range p.Read {
			p.AddFile(r, "", false)
		}
		for name := range p.Build.Links {
			p.Build.Files[name] = FileText{}
		}
		for name := range p.Build.Files {
			if !strings.HasPrefix(name, "/etc/") || strings.Contains(name, "/../") {
				t.Errorf("%q", name)
			}
		}
		for _, name := range p.Build.Recipe.Packages {
			if strings.HasPrefix(name, "-") || strings.ContainsAny(name, ", \n") {
				t.Errorf("%q", name)
			}
		}
	})
}
