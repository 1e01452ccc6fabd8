package wrap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// TestModuleCacheOfUser checks that a build of Go sees the module cache of its user if the project has fetched fewer of its
// modules, and that a cache that others or the call itself could write to is not shown.
func TestModuleCacheOfUser(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	project, fetched, home := filepath.Join(top, "p"), filepath.Join(top, "f"), filepath.Join(top, "h")
	own := filepath.Join(home, moduleCache)
	add := func(cache, path string) {
		for _, dir := range []string{cache + "/" + path + "@v1.0.0", cache + "/cache/download/" + path + "/@v/v1.0.0.info"} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(own, "example.org/!one")
	add(own, "example.org/two")
	add(fetched+"/"+moduleCache, "example.org/two")
	if err := os.MkdirAll(project, 0o755); err != nil {
		t.Fatal(err)
	}
	sums := "example.org/One v1.0.0 h1:x=\nexample.org/One v1.0.0/go.mod h1:x=\nexample.org/two v1.0.0 h1:x=\n../../x v1 h1:x=\nbroken\n"
	if err := os.WriteFile(project+"/go.sum", []byte(sums), 0o644); err != nil {
		t.Fatal(err)
	}
	plan := func(places ...bailey.Place) (job bailey.Job, wall bailey.Wall, missing []string) {
		job = bailey.Job{Dir: project, Places: places, Env: []string{"A=b", "GOMODCACHE=" + bailey.FetchedDir + "/" + moduleCache}}
		missing = chooseModules(&job, &wall, fetched, home)
		return job, wall, missing
	}
	job, wall, missing := plan()
	if job.Env[1] != "GOMODCACHE="+own || !slices.Contains(wall.Trees, bailey.Tree{Path: own}) || len(missing) > 0 {
		t.Errorf("own cache: %v %v %v", job.Env, wall.Trees, missing)
	}
	job = bailey.Job{Dir: project, Env: []string{"A=b"}}
	if missing := chooseModules(&job, &bailey.Wall{}, fetched, home); missing != nil || job.Env[0] != "A=b" {
		t.Errorf("another tool: %v %v", job.Env, missing)
	}
	if job, _, missing := plan(bailey.Place{Path: home, Write: true}); job.Env[1] == "GOMODCACHE="+own || len(missing) != 1 {
		t.Errorf("in a place of the call: %v %v", job.Env, missing)
	}
	if err := os.Chmod(own, 0o777); err != nil {
		t.Fatal(err)
	}
	if job, _, missing := plan(); job.Env[1] == "GOMODCACHE="+own || !slices.Equal(missing, []string{"example.org/One@v1.0.0"}) {
		t.Errorf("a cache that others write to: %v %v", job.Env, missing)
	}
	add(fetched+"/"+moduleCache, "example.org/!one")
	if job, wall, missing := plan(); len(missing) > 0 || len(wall.Trees) > 0 || job.Env[1] == "GOMODCACHE="+own {
		t.Errorf("all was fetched: %v %v %v", job.Env, wall.Trees, missing)
	}
	var said strings.Builder
	explainModules(&said, []string{"example.org/a@v1", "example.org/b@v1"})
	if !strings.Contains(said.String(), "example.org/a@v1 and 1 more is not downloaded; go mod download") {
		t.Error(said.String())
	}
}
