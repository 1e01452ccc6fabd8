package packs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/shell"

	"bailey/internal/ktest"
	"bailey/pack"
)

// meaningOf returns the capability and the class of the only call that a line means, or "".
func meaningOf(t *testing.T, line string) string {
	t.Helper()
	words, err := shell.Fields(line, nil)
	if err != nil {
		t.Fatal(line, err)
	}
	found := pack.Meanings(catalog(t).All(), words)
	if len(found) != 1 || len(found[0].Inputs) != 1 {
		return ""
	}
	if _, err := found[0].Check(found[0].Inputs[0], true); err != nil {
		return ""
	}
	return string(found[0].ID) + " " + string(found[0].SideEffect)
}

// TestBuildingLines checks the meaning and the class of command lines of tools that build, and that lines without a
// safe meaning have none.
func TestBuildingLines(t *testing.T) {
	for text := range strings.Lines(buildingLines) {
		line, want, ok := strings.Cut(strings.TrimSpace(text), " => ")
		if !ok {
			continue
		}
		if got := meaningOf(t, line); got != strings.TrimPrefix(want, "nothing") {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

const buildingLines = `
go build -trimpath -ldflags '-s -w' -o out/tool ./tool => go.build mutating
go build -C svc ./... => go.build mutating
go build -toolexec ./wrap . => nothing
go build -o /tmp/tool ./tool => nothing
go build -o /dev/null ./... => go.build mutating
go test -coverprofile ../c.out ./... => nothing
go build -overlay o.json . => nothing
go -C ../other build . => nothing
go test -count 1 -run 'Test(A|B)' ./store -golden => go.test mutating
go test ./store -toolexec=./wrap => nothing
go test ./store --exec ./wrap => nothing
go run ./tool -exec x => go.run mutating
go run => nothing
go run -exec ./wrap . => nothing
go list -deps -test ./store => go.list mutating
go list -m -u -f '{{.Path}}' all => go.updates mutating
go get -u golang.org/x/text@latest => go.get mutating
go get -modfile=/tmp/x.mod a.example/b => nothing
go clean -r ./... => go.clean destructive
go clean -fuzzcache => go.clean destructive
go env -w GOFLAGS=-x => nothing
go env GOVERSION => go.env mutating
go vet -vettool=./own ./... => nothing
go tool cover -func cover.out => go.tool mutating
go tool cover -html cover.out => nothing
go tool cover -html cover.out -o cover.html => go.cover-html mutating
go tool pprof mem.out => nothing
go tool pprof -http :0 mem.out => nothing
go tool pprof -svg -output mem.svg mem.out => go.pprof mutating
go tool pprof -text https://example.org/debug/pprof/heap => nothing
go tool trace t.out => nothing
go mod edit -dropreplace example.org/a => go.mod-edit mutating
go work use ./a ./b => go.work mutating
go doc -http => nothing
gofmt -l . => go.gofmt-check readOnly
gofmt -s -d cmd main.go => go.gofmt-check readOnly
gofmt -w . => go.gofmt mutating
gofmt -l -w main.go => go.gofmt mutating
gofmt -w /etc/x.go => nothing
gofmt => nothing
cargo -q build --all-targets => cargo.build mutating
cargo build --config build.rustc-wrapper=./x => nothing
cargo -Z unstable-options build => nothing
cargo test shop:: -- --ignored --test-threads 1 => cargo.test mutating
cargo run --bin shop serve --port 80 => cargo.run mutating
cargo add --git https://example.org/x.git x => nothing
cargo add anyhow@1 --path ../anyhow => nothing
cargo add serde --registry other => nothing
cargo clean --release => cargo.clean destructive
cargo uninstall shop => cargo.uninstall destructive
cargo publish -p shop => cargo.publish mutating
cargo publish --dry-run -p shop => cargo.publish-check mutating
cargo publish --index https://example.org/ => nothing
cargo yank shop@1.2.3 => cargo.yank destructive
cargo owner --remove ann shop => cargo.owner destructive
cargo login => nothing
cargo doc --open => nothing
make -j 3 lint test => make.run mutating
make -j => make.run mutating
make -f ../Makefile => nothing
make -C/tmp all => nothing
make -I inc V=1 => make.run mutating
make menuconfig => nothing
make test shell => nothing
make --eval='x:;true' => nothing
make SHELL=/bin/true all => nothing
make all .SHELLFLAGS=-x => nothing
make all 'MAKEFLAGS += -n' => nothing
make all GNUMAKEFLAGS=-n => nothing
make distclean => make.clean destructive
make -C docs clean html => make.clean destructive
make docker-prune ENV=ci => make.clean destructive
pip install -U 'rich>=13' -c constraints.txt => pip.install mutating
python3 -m pip install -e '.[test]' => pip.install mutating
pip install -i https://pypi.example.org/simple x => nothing
pip install --trusted-host pypi.example.org x => nothing
pip install https://example.org/x.whl => nothing
pip install --python /tmp/python x => nothing
pip install --config-settings x=y . => nothing
pip --python /tmp/python list => nothing
pip download -r ../requirements.txt => nothing
pip download --no-binary :all: x => nothing
pip install -r ../requirements.txt => nothing
pip install -t /tmp/lib rich => nothing
pip uninstall rich => nothing
pip uninstall -qy rich => pip.uninstall destructive
pip cache remove rich => pip.cache-clear destructive
pip config set global.index-url https://example.org/ => nothing
pip list --outdated --index-url https://example.org/ => nothing
pip index versions rich --pre => pip.index mutating
python -m venv env => pip.venv mutating
python -m venv /tmp/env => nothing
python -m venv --clear env => pip.venv-clear destructive
python -m pytest -q tests -k 'a and b' => python.module mutating
python -X dev -m shop serve --reload => python.module mutating
python -m pytest --pdb => nothing
python -m IPython => nothing
python -m code => nothing
python3 tools/gen.py --check => python.script mutating
python3 ../gen.py => nothing
python3 -c 'import this' => python.code mutating
python3 -c 'input()' => nothing
python3 - => nothing
python3 => nothing
python3 -i -c 1 => nothing
python manage.py dbshell => nothing
python3 -m pip cache purge => pip.cache-clear destructive
python3 -m twine upload --config-file /tmp/x dist/a.whl => nothing
python3 -m twine upload --skip-existing dist/a.whl => python.upload mutating
uv run -q pytest -x => uv.run mutating
uv run --with httpx python -c 1 => uv.python mutating
uv run python3.12 => nothing
uv run python -m IPython => nothing
uv run zsh => nothing
uv run --directory .. pytest => nothing
uv export -o /tmp/r.txt => nothing
uv run manage.py flush => nothing
uv run --config-file /tmp/uv.toml x => nothing
uv sync --default-index https://example.org/ => nothing
uv pip install --index https://example.org/ x => nothing
uv pip install 'git+https://example.org/x' => nothing
uv pip uninstall rich => uv.pip-uninstall destructive
uv venv -c => uv.venv-clear destructive
uv cache clean rich => uv.cache-clean destructive
uv python uninstall --all => uv.python-uninstall destructive
uv tool uninstall ruff => uv.tool-uninstall destructive
uv publish --token x dist/a.whl => nothing
uv publish dist/a.whl => uv.publish mutating
uv auth login pypi.org => nothing
uvx --from ruff ruff check => uv.tool-run mutating
`

// TestBuildersAnswerTheSame checks that the calls of lines that change nothing have the output and the exit code of
// the tool itself.
func TestBuildersAnswerTheSame(t *testing.T) {
	ktest.Long(t)
	dir, home := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/shop\n\ngo 1.24\n", "main.go": "package main\n\nfunc main() { println(\"sold\") }\n",
		"sub/sub.go": "package sub\n\nfunc Two() int { return 2 }\n", "sub/sub_test.go": "package sub\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) { t.Log(Two()) }\n",
		"Cargo.toml": "[package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2021\"\n", "src/lib.rs": "pub fn two() -> u8 { 2 }\n",
		"Makefile": "all: ; @echo X=$(X) $(MAKECMDGOALS)\nfail: ; @exit 3\n", "sub/Makefile": "all: ; @echo sub\n",
		"a.py": "import sys; print(sys.argv[1:]); sys.exit(4)\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(sameBuildingLines) {
		words, _ := shell.Fields(strings.TrimSpace(line), nil)
		if len(words) == 0 {
			continue
		}
		if _, err := exec.LookPath(words[0]); err != nil {
			continue
		}
		found := pack.Meanings(catalog(t).All(), words)
		if len(found) != 1 {
			t.Errorf("%s: %d meanings", line, len(found))
			continue
		}
		input := found[0].Inputs[0]
		input["dir"] = dir
		j := job(t, found[0].ID, input, map[string]string{"dir": dir})
		own := []string{"PATH=/usr/local/go/bin:/usr/bin:/bin", "HOME=" + home, "LC_ALL=C"}
		own = append(own, j.Env...)
		own = append(own, "GOTMPDIR=", "GOMODCACHE="+home, "CARGO_HOME="+home, "GOCACHE="+filepath.Join(home, "cache"))
		want := outputOf(t, dir, own, lookIn(t, words[0]), words[1:]...)
		if got := outputOf(t, dir, own, lookIn(t, j.Command), j.Args...); got != want {
			t.Errorf("%s\n%s\nwant\n%s", line, got, want)
		}
	}
}

// lookIn returns the program with a name in the directories of the system.
func lookIn(t *testing.T, name string) string {
	t.Helper()
	dirs := []string{"/usr/local/go/bin", "/usr/bin"}
	i := slices.IndexFunc(dirs, func(d string) bool { _, err := os.Stat(filepath.Join(d, name)); return err == nil })
	if filepath.IsAbs(name) || i < 0 {
		return name
	}
	return filepath.Join(dirs[i], name)
}

const sameBuildingLines = `
go version
go list ./...
go list -f '{{.Name}} {{.ImportPath}}' ./sub
go list -json=Name ./sub
go -C sub list .
go list --deps -test ./nothing
go list ./sub -f
go mod edit -json
go mod graph
go mod why fmt
go help mod
go env GOOS GOARCH
go doc ./sub Two
cargo tree
cargo metadata --no-deps --format-version 1
cargo pkgid
cargo tree -p none
cargo --version
make
make X=1 all
make -C sub
make fail
make -k fail none
make -n all -j 4
make -f none
python3 a.py -x -- y
python3 -c 'print(1)' -x
python3 -V
python3 -m json.tool --help
python3 -c 'raise SystemExit(5)'
`
