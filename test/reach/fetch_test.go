//go:build linux

package reach

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"

	"bailey"
	"bailey/internal/ktest"
)

// TestFetches checks that download tools get the package from its registry and run nothing of it.
func TestFetches(t *testing.T) {
	ktest.Long(t)
	t.Run("go", func(t *testing.T) {
		s := newSite(t, "go")
		archive := moduleZip(t)
		mux := http.NewServeMux()
		for name, body := range map[string]string{"info": `{"Version":"v1.0.0","Time":"2026-01-02T03:04:05Z"}`, "mod": "module example.com/m\n", "zip": string(archive)} {
			mux.HandleFunc("/example.com/m/@v/v1.0.0."+name, func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, body) })
		}
		s.https("proxy.golang.org", "93.184.216.40", mux)
		file := filepath.Join(s.root, "m.zip")
		os.WriteFile(file, archive, 0o600)
		sum, err := dirhash.HashZip(file, dirhash.Hash1)
		if err != nil {
			t.Fatal(err)
		}
		ofMod := sha256.Sum256([]byte("module example.com/m\n"))
		list := sha256.Sum256(fmt.Appendf(nil, "%x  go.mod\n", ofMod))
		p := s.project("p", "go.mod", "module p\n\ngo 1.20\n\nrequire example.com/m v1.0.0\n",
			"go.sum", fmt.Sprintf("example.com/m v1.0.0 %s\nexample.com/m v1.0.0/go.mod h1:%s\n", sum, base64.StdEncoding.EncodeToString(list[:])))
		if r := s.call("go.download", p, nil); r.exit.Code != 0 || r.report.Connections == 0 {
			t.Fatalf("%d\n%s\n%+v", r.exit.Code, r, r.report)
		}
		if r := s.call("go.list", p, map[string]any{"modules": true, "packages": "all"}); !strings.Contains(r.out, "example.com/m v1.0.0") {
			t.Error(r)
		}
		// A module without a checksum, and one that would be fetched by git, must fail.
		os.WriteFile(filepath.Join(p, "go.mod"), []byte("module p\n\ngo 1.20\n\nrequire evil.example/m v1.0.0\n"), 0o644)
		if r := s.call("go.download", p, nil); r.exit.Code == 0 {
			t.Error(r)
		}
		for _, name := range s.lookedUp() {
			if name != "proxy.golang.org" && name != "sum.golang.org" {
				t.Errorf("%s was looked up", name)
			}
		}
	})
	t.Run("npm", func(t *testing.T) {
		s := newSite(t, "npm")
		tgz := tarball(t, "package/package.json", `{"name":"yard-pad","version":"4.5.6","scripts":{"postinstall":"touch ran"}}`, "package/index.js", "module.exports = 7\n")
		digest := sha512.Sum512(tgz)
		mux := http.NewServeMux()
		mux.HandleFunc("/yard-pad", func(rw http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(rw, `{"name":"yard-pad","dist-tags":{"latest":"4.5.6"},"versions":{"4.5.6":{"name":"yard-pad","version":"4.5.6","hasInstallScript":true,"dist":{"integrity":"sha512-%s","tarball":"https://registry.npmjs.org/t.tgz"}}}}`,
				base64.StdEncoding.EncodeToString(digest[:]))
		})
		mux.HandleFunc("/t.tgz", func(rw http.ResponseWriter, _ *http.Request) { rw.Write(tgz) })
		s.https("registry.npmjs.org", "93.184.216.41", mux)
		p := s.project("p", "package.json", `{"name":"p","version":"1.0.0","scripts":{"preinstall":"touch ran","test":"node -p 'require(\"yard-pad\")'"}}`,
			".npmrc", "registry=https://evil.example/\nscript-shell=/bin/sh\n")
		for _, c := range []bailey.CapabilityID{"npm.install", "npm.ci"} {
			input := map[string]any{"package": "yard-pad"}
			if c == "npm.ci" {
				input = nil
			}
			if r := s.call(c, p, input); r.exit.Code != 0 {
				t.Fatalf("%s: %d\n%s\n%+v", c, r.exit.Code, r, r.report)
			}
		}
		for _, ran := range []string{"ran", "node_modules/yard-pad/ran"} {
			if _, err := os.Lstat(filepath.Join(p, ran)); err == nil {
				t.Errorf("%s: a script ran where there is a network", ran)
			}
		}
		if r := s.call("npm.test", p, nil); r.exit.Code != 0 || !strings.Contains(r.out, "7") {
			t.Error(r)
		}
		if r := s.call("npm.view", p, map[string]any{"words": []any{"yard-pad", "version"}}); r.exit.Code != 0 || !strings.Contains(r.out, "4.5.6") {
			t.Error(r)
		}
		if r := s.call("npm.npx", p, map[string]any{"call": "node -p 40+2"}); r.exit.Code != 0 || !strings.Contains(r.out, "42") {
			t.Error(r)
		}
		if r := s.call("npm.rebuild", p, nil); r.exit.Code != 0 {
			t.Error(r)
		}
		if _, err := os.Lstat(filepath.Join(p, "node_modules/yard-pad/ran")); err != nil {
			t.Error("its install script did not run when it was meant to:", err)
		}
		s.only(t, "registry.npmjs.org")
	})
	t.Run("pip", func(t *testing.T) {
		ktest.Require(t, "/usr/bin/python3")
		s := newSite(t)
		wheel := zipped(t, "yard_pad.py", "seven = 7\n", "yard_pad-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: yard-pad\nVersion: 1.0\n",
			"yard_pad-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
			"yard_pad-1.0.dist-info/RECORD", "yard_pad.py,,\nyard_pad-1.0.dist-info/METADATA,,\nyard_pad-1.0.dist-info/WHEEL,,\nyard_pad-1.0.dist-info/RECORD,,\n")
		mux := http.NewServeMux()
		page := func(file string) http.HandlerFunc {
			return func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "text/html")
				fmt.Fprintf(rw, `<a href="https://files.pythonhosted.org/%s">%[1]s</a>`, file)
			}
		}
		mux.HandleFunc("/simple/yard-pad/", page("yard_pad-1.0-py3-none-any.whl"))
		mux.HandleFunc("/simple/yard-source/", page("yard-source-1.0.tar.gz"))
		s.https("pypi.org", "93.184.216.42", mux)
		files := http.NewServeMux()
		files.HandleFunc("/yard_pad-1.0-py3-none-any.whl", func(rw http.ResponseWriter, _ *http.Request) { rw.Write(wheel) })
		files.HandleFunc("/yard-source-1.0.tar.gz", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Write(tarball(t, "yard-source-1.0/setup.py", "open('ran', 'w')\n"))
		})
		s.https("files.pythonhosted.org", "93.184.216.43", files)
		p := s.project("p", "requirements.txt", "yard-pad==1.0\n", "source.txt", "yard-source\n", "t.py", "import yard_pad; print('it is', yard_pad.seven)\n")
		named := map[string]any{"requirements": "requirements.txt"}
		for _, c := range []bailey.CapabilityID{"pip.venv", "pip.download", "pip.install"} {
			input := named
			if c == "pip.venv" {
				input = nil
			}
			if r := s.call(c, p, input); r.exit.Code != 0 || c == "pip.install" && r.report.Connections > 0 {
				t.Fatalf("%s: %d\n%s\n%+v", c, r.exit.Code, r, r.report)
			}
		}
		if r := s.call("pip.python", p, map[string]any{"module": "t"}); !strings.Contains(r.out, "it is 7") {
			t.Error(r)
		}
		for _, c := range []bailey.CapabilityID{"pip.download", "pip.install"} {
			if r := s.call(c, p, map[string]any{"requirements": "source.txt"}); r.exit.Code == 0 {
				t.Errorf("%s had what builds itself:\n%s", c, r)
			}
		}
		s.only(t, "pypi.org", "files.pythonhosted.org")
	})
	t.Run("cargo", func(t *testing.T) {
		ktest.Require(t, "/usr/bin/cargo")
		s := newSite(t)
		crate := tarball(t, "yard-pad-1.0.0/Cargo.toml", "[package]\nname = \"yard-pad\"\nversion = \"1.0.0\"\nedition = \"2021\"\nbuild = \"build.rs\"\n",
			"yard-pad-1.0.0/build.rs", "fn main() { std::fs::write(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/ran\"), \"\").ok(); }\n", "yard-pad-1.0.0/src/lib.rs", "pub fn seven() -> u8 { 7 }\n")
		index := http.NewServeMux()
		index.HandleFunc("/config.json", func(rw http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(rw, `{"dl":"https://static.crates.io/crates","api":"https://crates.io"}`)
		})
		index.HandleFunc("/ya/rd/yard-pad", func(rw http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(rw, `{"name":"yard-pad","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sha256.Sum256(crate))
		})
		s.https("index.crates.io", "93.184.216.44", index)
		crates := http.NewServeMux()
		crates.HandleFunc("/crates/yard-pad/1.0.0/download", func(rw http.ResponseWriter, _ *http.Request) { rw.Write(crate) })
		s.https("static.crates.io", "93.184.216.45", crates)
		p := s.project("p", "Cargo.toml", "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nyard-pad = \"1\"\n",
			"src/lib.rs", "#[test]\nfn seven() { assert_eq!(yard_pad::seven(), 7); println!(\"it is seven\"); }\n")
		if r := s.call("cargo.fetch", p, nil); r.exit.Code != 0 || r.report.Connections == 0 {
			t.Fatalf("%d\n%s\n%+v", r.exit.Code, r, r.report)
		}
		if r := s.call("cargo.test", p, map[string]any{"locked": true}); r.exit.Code != 0 || !strings.Contains(r.out, "test seven ... ok") {
			t.Error(r)
		}
		s.only(t, "index.crates.io", "static.crates.io")
	})
}

// only checks that no other names were looked up.
func (s *site) only(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range s.lookedUp() {
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") {
			t.Errorf("%s was looked up", name)
		}
	}
}

func tarball(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i+1 < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(files[i+1]))
	}
	if w.Close() != nil || z.Close() != nil {
		t.Fatal("no archive")
	}
	return b.Bytes()
}

func zipped(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i+1 < len(files); i += 2 {
		f, err := z.Create(files[i])
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte(files[i+1]))
	}
	if z.Close() != nil {
		t.Fatal("no archive")
	}
	return b.Bytes()
}

// TestClones checks that a repository is cloned over https from the endpoint in the call, and that redirects to another
// one are not followed.
func TestClones(t *testing.T) {
	ktest.Long(t)
	s := newSite(t, "git")
	w := yard(t, "git")
	s.world.mu.Lock()
	s.world.names, s.world.places, s.world.ca, s.world.key = w.names, w.places, w.ca, w.key
	s.world.mu.Unlock()
	p := s.project("p")
	for url, ok := range map[string]bool{"https://api.example.com/git/repo.git": true, "https://api.example.com/away": false, "https://evil.example/none": false} {
		input := map[string]any{"url": url, "name": "copy"}
		r := s.callAt("git.clone", "into", p, input)
		if _, err := os.Lstat(filepath.Join(p, "copy", ".git")); (err == nil) != ok || (r.exit.Code == 0) != ok {
			t.Errorf("%s: %d, %v\n%s", url, r.exit.Code, err, r)
		}
		os.RemoveAll(filepath.Join(p, "copy"))
	}
	if r := s.callAt("git.ls-remote", "", "", map[string]any{"url": "https://api.example.com/git/repo.git"}); !strings.Contains(r.out, "refs/heads/main") {
		t.Error(r)
	}
}
