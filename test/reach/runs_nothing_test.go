//go:build linux

package reach

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/wrap"
	"bailey/pack"
	"bailey/packs"
)

// TestAttackFetchRunsProject checks that tools that reach a registry run no file that a project has prepared for them.
func TestAttackFetchRunsProject(t *testing.T) {
	ktest.Long(t)
	script := "#!/bin/sh\ntouch ran\n"
	t.Run("npm", func(t *testing.T) {
		for name, c := range map[string]struct{ npmrc, prepare string }{
			"shell": {"script-shell=/bin/sh\nignore-scripts=false\n", "touch ran"},
			// node -c runs required modules
			"node":   {"script-shell=/usr/bin/node\nignore-scripts=false\n", "--require=./evil.cjs"},
			"option": {"node-options=--require=./evil.cjs\nscript-shell=/usr/bin/node\ngit=/usr/bin/node\n", "evil.cjs"},
		} {
			t.Run(name, func(t *testing.T) {
				s := newSite(t, "npm", "npm10")
				s.npm("npm10")
				s.https("registry.npmjs.org", "93.184.216.41", http.NotFoundHandler())
				const evil = "require('fs').writeFileSync('ran', '')\n"
				p := s.project("p", ".npmrc", "install-links=true\n"+c.npmrc, "evil.cjs", evil, "sub/evil.cjs", evil,
					"package.json", `{"name":"p","version":"1.0.0","scripts":{"prepare":"touch ran","preinstall":"touch ran"},"dependencies":{"sub":"file:sub"}}`,
					"sub/package.json", `{"name":"sub","version":"1.0.0","main":"evil.cjs","scripts":{"prepare":"`+c.prepare+`","prepack":"touch ran","postinstall":"touch ran"}}`)
				for _, id := range []bailey.CapabilityID{"npm.install", "npm.ci", "npm.outdated", "npm.ls"} {
					wantNothingRan(t, p, string(id), s.call(id, p, nil))
				}
			})
		}
	})
	t.Run("pip", func(t *testing.T) {
		ktest.Require(t, "/usr/bin/python3")
		s := newSite(t)
		s.https("pypi.org", "93.184.216.42", http.NotFoundHandler())
		p := s.project("p", "requirements.txt", "yard-pad==1.0\n", "pip.py", "open('ran', 'w')\n", "sitecustomize.py", "open('ran', 'w')\n", "pip.conf", "[global]\npython = ./evil\n",
			"setup.py", "open('ran', 'w')\n")
		if r := s.call("pip.venv", p, nil); r.exit.Code != 0 {
			t.Fatal(r)
		}
		in, _ := filepath.Glob(filepath.Join(p, ".venv/lib/python3*/site-packages"))
		if len(in) != 1 {
			t.Fatal(in)
		}
		for name, text := range map[string]string{"evil.pth": "import sys; open('ran', 'w')\n", "sitecustomize.py": "open('ran', 'w')\n", "keyring.py": "open('ran', 'w')\n", "pip/__main__.py": "open('ran', 'w')\n"} {
			if err := os.WriteFile(filepath.Join(in[0], name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		named := map[string]any{"requirements": "requirements.txt"}
		r := s.call("pip.download", p, named)
		if r.report.Connections == 0 {
			t.Error("it reached nothing, so this shows nothing")
		}
		wantNothingRan(t, p, "pip.download", r)
		for c, input := range map[bailey.CapabilityID]map[string]any{"pip.outdated": {"outdated": true}, "pip.index": {"package": "yard-pad"}} {
			wantNothingRan(t, p, string(c), s.call(c, p, input))
		}
		// Build options in a requirements file override the command line.
		source := tarball(t, "yard-source-1.0/setup.py", "open('"+p+"/ran', 'w')\n")
		files := http.NewServeMux()
		files.HandleFunc("/yard-source-1.0.tar.gz", func(rw http.ResponseWriter, _ *http.Request) { rw.Write(source) })
		s.https("files.pythonhosted.org", "93.184.216.43", files)
		for name, text := range map[string]string{"evil/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"b\"\nbackend-path = [\".\"]\n", "evil/b.py": "open('" + p + "/ran', 'w')\n",
			"evil/setup.py": "open('" + p + "/ran', 'w')\n"} {
			os.MkdirAll(filepath.Join(p, "evil"), 0o755)
			if err := os.WriteFile(filepath.Join(p, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, line := range []string{"./evil", "-e ./evil", "evil @ file://" + p + "/evil", "yard-source @ https://files.pythonhosted.org/yard-source-1.0.tar.gz",
			"--no-binary :all:\n--find-links https://files.pythonhosted.org/\nhttps://files.pythonhosted.org/yard-source-1.0.tar.gz"} {
			if err := os.WriteFile(filepath.Join(p, "requirements.txt"), []byte(line+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			wantNothingRan(t, p, "pip.download of "+line, s.call("pip.download", p, named))
		}
	})
	t.Run("go", func(t *testing.T) {
		s := newSite(t, "go")
		s.https("proxy.golang.org", "93.184.216.40", http.NotFoundHandler())
		p := s.project("p", "go.mod", "module p\n\ngo 1.20\n\ntoolchain go1.99.9-custom\n\nrequire example.com/m v1.0.0\n", "go.env", "GOFLAGS=-toolexec=./evil\n", "evil", script,
			"p.go", "package p\n\n// #cgo pkg-config: evil\nimport \"C\"\n\nimport _ \"example.com/m\"\n\n//go:generate ./evil\n")
		os.Chmod(filepath.Join(p, "evil"), 0o755)
		for c, input := range map[bailey.CapabilityID]map[string]any{"go.download": nil, "go.tidy": nil, "go.get": {"module": "example.com/m@v1.0.0"},
			"go.updates": {"updates": true, "options": []any{"-m"}, "words": []any{"all"}}} {
			wantNothingRan(t, p, string(c), s.call(c, p, input))
		}
	})
	t.Run("cargo", func(t *testing.T) {
		ktest.Require(t, "/usr/bin/cargo")
		s := newSite(t)
		s.https("index.crates.io", "93.184.216.44", http.NotFoundHandler())
		config := "[build]\nrustc = \"./evil\"\nrustc-wrapper = \"/usr/bin/python3\"\n[registry]\nglobal-credential-providers = [\"/usr/bin/python3 evil\"]\n"
		p := s.project("p", "Cargo.toml", "[package]\nname = \"p\"\nversion = \"0.1.0\"\n[dependencies]\nyard-pad = \"1\"\n", "src/lib.rs", "", ".cargo/config.toml", config, "rustc", "open('ran', 'w')\n",
			"evil", script)
		os.Chmod(filepath.Join(p, "evil"), 0o755)
		// An earlier build leaves files in its HOME, which must not be the HOME of tools that fetch.
		s.call("cargo.build", p, nil)
		for _, home := range homes(s, "cargo") {
			os.MkdirAll(filepath.Join(home, ".cargo"), 0o755)
			os.WriteFile(filepath.Join(home, ".cargo/config.toml"), []byte(config), 0o644)
		}
		for c, input := range map[bailey.CapabilityID]map[string]any{"cargo.fetch": nil, "cargo.update": {"command": "update"},
			"cargo.add": {"words": []any{"yard-pad"}}, "cargo.search": {"command": "info", "words": []any{"yard-pad"}}} {
			wantNothingRan(t, p, string(c), s.call(c, p, input))
		}
	})
}

// TestAttackFetchedIsReadOnly checks that a build can read the downloads for its project but not change them, and that
// its HOME differs from that of the download tools.
func TestAttackFetchedIsReadOnly(t *testing.T) {
	ktest.Long(t)
	s := newSite(t, "make", "npm")
	p, q := s.project("p"), s.project("q")
	fetched := wrap.State(filepath.Join(s.home, "caches", "make")).Fetched(p)
	s.make(p, "echo first")
	pour := filepath.Join(fetched, "module")
	if err := os.WriteFile(pour, []byte("as downloaded"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := s.make(p, "cat /home/fetched/module", "echo evil > /home/fetched/module; echo evil > /home/fetched/config; rm -rf /home/fetched/module; mv /home/fetched/module /home/fetched/m", "echo mine > $HOME/config",
		"umount /home/fetched; mount -o remount,rw /home/fetched; ln -s x /home/fetched/link", "echo done")
	if !strings.Contains(r.out, "as downloaded") || !strings.Contains(r.out, "done") {
		t.Error(r)
	}
	if now, err := os.ReadFile(pour); string(now) != "as downloaded" {
		t.Errorf("%q, %v", now, err)
	}
	for _, name := range []string{"config", "link", "m"} {
		if _, err := os.Lstat(filepath.Join(fetched, name)); err == nil {
			t.Errorf("%s is where a tool that downloads would find it", name)
		}
	}
	if r := s.make(q, "ls /home/fetched; cat /home/fetched/module"); strings.Contains(r.out, "module") || strings.Contains(r.out, "as downloaded") {
		t.Errorf("what was downloaded for another project:\n%s", r)
	}
}

// npm selects an npm other than the host's.
func (s *site) npm(program string) {
	s.t.Helper()
	found, err := exec.LookPath(program)
	if err == nil {
		found, err = filepath.EvalSymlinks(found)
	}
	text, rerr := packs.FS.ReadFile("npm/pack.yaml")
	if err = errors.Join(err, rerr); err != nil {
		s.t.Fatal(err)
	}
	now := strings.NewReplacer("command: npm\n", "command: "+found+"\n", "ro: [", "ro: ["+filepath.Dir(filepath.Dir(found))+", ").Replace(string(text))
	if s.catalog, err = pack.LoadBuiltin(fstest.MapFS{"npm/pack.yaml": {Data: []byte(now)}}); err != nil {
		s.t.Fatal(err)
	}
}

// homes returns the persistent homes of a pack's tools.
func homes(s *site, pack string) []string {
	list, _ := filepath.Glob(filepath.Join(s.home, "caches", pack, "*", "home"))
	return list
}

func wantNothingRan(t *testing.T, project, what string, r ended) {
	t.Helper()
	filepath.WalkDir(project, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "ran" {
			t.Errorf("%s ran something of the project's, where there is a network:\n%s", what, r)
			os.Remove(path)
		}
		return nil
	})
	if strings.Contains(r.String(), "no call was made") {
		t.Error(r)
	}
}
