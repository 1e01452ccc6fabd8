//go:build linux

package reach

import (
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// python returns a job for the machine's own Python, with its modules and their libraries.
func python(t *testing.T, program string) bailey.Job {
	t.Helper()
	ktest.Require(t, "/usr/bin/python3")
	dirs, err := filepath.Glob("/usr/lib/python3.[0-9]*")
	if err != nil || len(dirs) == 0 {
		ktest.Missing(t, "/usr/bin/python3", err)
	}
	job := bailey.Job{Command: "/usr/bin/python3", Args: []string{"-I", "-c", program}, Read: dirs}
	for _, d := range dirs {
		job.Libs = append(job.Libs, filepath.Join(d, "lib-dynload"))
	}
	return job
}

// TestPythonSpeaksTLS checks that Python can load its modules, which are libraries, and the libraries that ssl needs.
func TestPythonSpeaksTLS(t *testing.T) {
	w := yard(t)
	job := python(t, "import urllib.request as u; print(u.urlopen('https://api.example.com/page').read())")
	if r := w.run(job, false, "api.example.com:443"); r.exit.Code != 0 || !strings.Contains(r.out, "the page") {
		t.Errorf("exit %d, %+v\n%s", r.exit.Code, r.report, r)
	}
	job.Libs, job.Args = nil, []string{"-I", "-c", "import ssl"}
	if r := w.run(job, false, "api.example.com:443"); r.exit.Code == 0 || !strings.Contains(r.err, "ImportError") {
		t.Errorf("without libraries that are named: exit %d\n%s", r.exit.Code, r)
	}
}

// TestLibrariesAreNoPrograms checks that a file that may be mapped as code cannot be started, neither directly nor by
// the tool's loader.
func TestLibrariesAreNoPrograms(t *testing.T) {
	w := newWorld(t)
	job := python(t, `
import glob, os, sys
lib = glob.glob('/usr/lib/python3.*/lib-dynload/_ssl*.so')[0]
for argv in [[lib], ['/usr/bin/true'], ['/bin/sh', '-c', 'true']]:
    try:
        print('started', os.posix_spawn(argv[0], argv, {}))
    except OSError as e:
        print('refused', e.errno)
try:
    open(os.path.dirname(lib) + '/more.so', 'w')
    print('wrote')
except OSError as e:
    print('refused', e.errno)
`)
	if r := w.run(job, false); r.exit.Code != 0 || strings.Count(r.out, "refused") != 4 || strings.Contains(r.out, "started") || strings.Contains(r.out, "wrote") {
		t.Errorf("exit %d\n%s", r.exit.Code, r)
	}
}
