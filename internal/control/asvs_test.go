package control_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bailey/internal/console"
)

// asvs has the number of requirements of levels 1 and 2 in each section of the chapters that docs/asvs.md covers, as
// they are numbered: the requirements of level 3 follow, or are left out.
var asvs = map[string][]int{"4.1": {1, 2, 3}, "4.2": {1}, "4.3": {1, 2}, "4.4": {1, 2, 3, 4}, "6.1": {1, 2, 3},
	"6.2": {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "6.3": {1, 2, 3, 4}, "6.4": {1, 2, 3, 4}, "6.5": {1, 2, 3, 4, 5},
	"6.6": {1, 2, 3}, "6.8": {1, 2, 3, 4}, "7.1": {1, 2, 3}, "7.2": {1, 2, 3, 4}, "7.3": {1, 2}, "7.4": {1, 2, 3, 4, 5},
	"7.5": {1, 2}, "7.6": {1, 2}, "8.1": {1, 2}, "8.2": {1, 2, 3}, "8.3": {1}, "8.4": {1}}

// TestVerificationStandard: docs/asvs.md has every requirement once, each that holds names a test, and each named test
// exists.
func TestVerificationStandard(t *testing.T) {
	t.Parallel()
	missing := map[string]bool{}
	for section, numbers := range asvs {
		for _, n := range numbers {
			missing[fmt.Sprintf("%s.%d", section, n)] = true
		}
	}
	text, err := os.ReadFile("../../docs/asvs.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	team, err := os.ReadFile("../../docs/team.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9.]+) \| (.+) \| (\w+) \| (.+) \|$`).FindAllStringSubmatch(string(text),
		-1) {
		id, state, shown := row[1], row[3], row[4]
		if !missing[id] {
			t.Errorf("%s is there twice, or is not one of the standard's", id)
		}
		delete(missing, id)
		named := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(shown, -1)
		for _, name := range named {
			if !tests[name[1]] {
				t.Errorf("%s names %s, which does not exist", id, name[1])
			}
		}
		section := regexp.MustCompile(`team\.md, "([^"]+)"`).FindStringSubmatch(shown)
		switch state {
		case "holds":
			if len(named) == 0 {
				t.Errorf("%s holds by no test", id)
			}
		case "document":
			if section == nil || !strings.Contains(string(team), "\n## "+section[1]+"\n") {
				t.Errorf("%s names no section of team.md: %s", id, shown)
			}
		case "part", "no", "none":
		default:
			t.Errorf("%s has the state %q", id, state)
		}
	}
	if len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
}

// testNames returns the names of all tests of the control plane.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, dir := range []string{".", "../auth", "../store"} {
		if err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
				all[found[1]] = true
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestContentTypes: each answer with a body says of which type it is, and in which character set unless it is JSON,
// which has only one.
func TestContentTypes(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, _ := f.setUp(t)
	for path, want := range map[string]string{"/": "text/html; charset=utf-8", "/account": "text/html; charset=utf-8",
		"/login": "text/html; charset=utf-8", console.Asset("console.css"): "text/css; charset=utf-8",
		console.Asset("console.js"): "text/javascript; charset=utf-8", "/api/v1/me": "application/json",
		"/api/v1/organisations/none/members": "application/problem+json", "/api/v1/me?x=1": "application/problem+json",
		"/openapi.json": "application/openapi+json", "/none": "text/plain; charset=utf-8"} {
		resp := owner.get(f.URL + path)
		if got := resp.Header.Get("Content-Type"); got != want || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d with %q", path, resp.StatusCode, got)
		}
	}
}

// TestPasswordFields: fields for passwords hide them, and say to password managers which one they are. Pages that need a
// session have the sign-out.
func TestPasswordFields(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, _ := f.setUp(t)
	fields := 0
	for _, path := range []string{"/login", "/setup?token=x", "/join?token=x", "/account"} {
		_, text := owner.send("GET", path, nil)
		for _, field := range regexp.MustCompile(`(?s)<input[^>]*password[^>]*>`).FindAllString(string(text), -1) {
			fields++
			if !strings.Contains(field, `type="password"`) || !regexp.MustCompile(
				`autocomplete="(new|current)-password"`).MatchString(field) || strings.Contains(field, "onpaste") {
				t.Errorf("%s: %s", path, field)
			}
		}
	}
	for _, path := range []string{"/", "/account"} { // the pages that need a session
		if _, text := owner.send("GET", path, nil); !strings.Contains(string(text), `action="/logout"`) {
			t.Errorf("%s has no sign-out", path)
		}
	}
	if fields != 5 {
		t.Errorf("%d fields", fields)
	}
}
