package control_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"bailey/internal/ktest"
)

const wantMembers = "ann@example.com owner\n"

// clientDirectory returns a directory with the OpenAPI document of a server and a program of testdata, and the
// environment of that program.
func clientDirectory(t *testing.T, program string) (dir string, env []string) {
	t.Helper()
	f := startServer(t)
	owner, shop := f.setUp(t)
	dir = t.TempDir()
	_, document := f.newClient(t).send("GET", "/openapi.json", nil)
	source, err := os.ReadFile(filepath.Join("testdata", "clients", program+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	ktest.Write(t, filepath.Join(dir, "openapi.json"), string(document))
	ktest.Write(t, filepath.Join(dir, program), string(source))
	return dir, append(os.Environ(), "SERVER="+f.URL, "ORGANISATION="+shop, "TOKEN="+owner.program(shop, "member").token)
}

// runIn runs a program that must succeed, and returns its output.
func runIn(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Env = dir, env
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("%s %q: %v: %s%s", name, args, err, out, exit.Stderr)
	}
	return string(out)
}

// TestGeneratedGoClient generates a client of the API with oapi-codegen, and uses it.
func TestGeneratedGoClient(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	ktest.Require(t, "oapi-codegen")
	dir, env := clientDirectory(t, "main.go")
	runIn(t, dir, env, "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", "api.go", "openapi.json")
	ktest.Write(t, filepath.Join(dir, "go.mod"),
		"module client\n\ngo 1.26\n\nrequire github.com/oapi-codegen/runtime v1.9.0\n")
	env = append(env, "GOFLAGS=-mod=mod -buildvcs=false")
	if got := runIn(t, dir, env, "go", "run", "."); got != wantMembers {
		t.Errorf("got %q", got)
	}
}

// TestGeneratedTypeScriptClient generates the types of the API with openapi-typescript, compiles a program that uses them
// with openapi-fetch, and runs it.
func TestGeneratedTypeScriptClient(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	ktest.Require(t, "node", "openapi-typescript", "tsc")
	modules, err := findModule("openapi-fetch", "BAILEY_OPENAPI_FETCH")
	if err != nil {
		ktest.Missing(t, "openapi-fetch", err)
	}
	dir, env := clientDirectory(t, "main.ts")
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, env, "openapi-typescript", "openapi.json", "--output", "api.ts")
	ktest.Write(t, filepath.Join(dir, "package.json"), `{"type": "module"}`)
	ktest.Write(t, filepath.Join(dir, "node.d.ts"), "declare const process: {env: Record<string, string | undefined>};\n")
	runIn(t, dir, env, "tsc", "--strict", "--noUnusedLocals", "--skipLibCheck", "--target", "es2022", "--lib", "es2022,dom",
		"--module", "nodenext", "--outDir", "out", "main.ts", "node.d.ts")
	ktest.Write(t, filepath.Join(dir, "out", "package.json"), `{"type": "module"}`)
	if got := runIn(t, dir, env, "node", filepath.Join("out", "main.js")); got != wantMembers {
		t.Errorf("got %q", got)
	}
}
