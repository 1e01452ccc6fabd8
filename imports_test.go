package bailey_test

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// imports lists which packages of this module, and which external modules, a package may import.
type imports struct{ ours, outside []string }

// layers is the import table, from the common types to the programs. A package may import packages of lower layers, and
// of its own layer only if the table names them; both must be listed. A package without a line here is an error.
var layers = []struct {
	name, purpose string
	packages      map[string]imports
}{
	{"vocabulary", "common types", map[string]imports{
		".": {},
	}},
	{"pure", "functions without side effects", map[string]imports{
		"audit":                  {ours: []string{"."}, outside: []string{"golang.org/x/mod"}},
		"hook":                   {ours: []string{"."}},
		"pack":                   {ours: []string{".", "internal/sigv4", "internal/gitremote", "internal/strictjson", "internal/strictyaml"}, outside: []string{"github.com/goccy/go-yaml", "golang.org/x/mod"}},
		"pack/clixpack":          {ours: []string{".", "internal/strictyaml", "pack"}, outside: []string{"github.com/goccy/go-yaml"}},
		"packs":                  {},
		"internal/policy":        {ours: []string{".", "internal/strictjson", "internal/strictyaml"}, outside: []string{"github.com/cedar-policy/cedar-go", "github.com/goccy/go-yaml"}},
		"internal/policy/review": {ours: []string{".", "internal/policy", "internal/strictjson"}, outside: []string{"github.com/cedar-policy/cedar-go"}},
		"internal/redact":        {ours: []string{"."}},
		"internal/redact/gen":    {},
		"internal/sigv4":         {},
		"internal/sshsig":        {ours: []string{"."}, outside: []string{"golang.org/x/crypto/ssh"}},
		"internal/approvaltext":  {ours: []string{"."}},
		"internal/approver":      {ours: []string{".", "internal/approvaltext", "internal/passkey", "internal/sshsig"}},
		"internal/passkey":       {ours: []string{"."}},
		"internal/shellparse":    {ours: []string{"."}, outside: []string{"mvdan.cc/sh/v3/syntax"}},
		"internal/guard":         {},
		"internal/gitremote":     {ours: []string{"."}},
		"internal/onboard":       {ours: []string{"."}},
		"internal/modelwire":     {ours: []string{"."}, outside: []string{"github.com/go-json-experiment/json/jsontext"}},
		"internal/readonly":      {ours: []string{"internal/strictjson"}, outside: []string{"mvdan.cc/sh/v3/syntax"}},
		"internal/receipts":      {ours: []string{".", "audit"}},
		"internal/toolsearch":    {ours: []string{"internal/strictyaml", "pack"}},
		"internal/strictjson":    {outside: []string{"github.com/go-json-experiment/json/jsontext"}},
		"internal/strictyaml":    {ours: []string{"."}, outside: []string{"github.com/goccy/go-yaml"}},
	}},
	{"system", "the kernel, files, the network and keys", map[string]imports{
		"internal/peer":          {ours: []string{"."}, outside: []string{"golang.org/x/sys"}},
		"internal/terminal":      {},
		"internal/program":       {ours: []string{"."}},
		"internal/telemetry":     {},
		"internal/safefile":      {ours: []string{"."}},
		"internal/strangers":     {},
		"internal/toolchain":     {ours: []string{".", "internal/safefile"}, outside: []string{"github.com/pelletier/go-toml/v2"}},
		"internal/jail":          {ours: []string{".", "internal/jail/inside"}, outside: []string{"golang.org/x/sys"}},
		"internal/jail/inside":   {},
		"internal/remote":        {ours: []string{"."}, outside: []string{"golang.org/x/crypto/ssh"}},
		"internal/fleet":         {ours: []string{".", "internal/safefile"}, outside: []string{"google.golang.org/protobuf/encoding/protowire"}},
		"internal/fleet/pipe":    {ours: []string{".", "internal/fleet"}},
		"internal/fleet/link":    {ours: []string{".", "internal/fleet", "internal/fleet/pipe"}, outside: []string{"google.golang.org/grpc"}},
		"internal/hostapply":     {ours: []string{"."}, outside: []string{"golang.org/x/sys"}},
		"internal/source":        {ours: []string{".", "internal/hostapply", "internal/readonly", "internal/readonlyshell", "internal/remote", "internal/safefile", "internal/sshca", "internal/strictjson"}, outside: []string{"golang.org/x/crypto/ssh"}},
		"internal/readonlyshell": {ours: []string{".", "internal/jail", "internal/readonly", "internal/safefile"}, outside: []string{"golang.org/x/sys"}},
		"internal/egress":        {ours: []string{".", "internal/sigv4"}, outside: []string{"golang.org/x/crypto/cryptobyte"}},
		"internal/socketproxy":   {ours: []string{"."}},
		"internal/sshca":         {ours: []string{"."}, outside: []string{"golang.org/x/crypto/ssh"}},
		"internal/gitsign":       {ours: []string{".", "internal/sshsig", "pack"}, outside: []string{"golang.org/x/crypto/ssh"}},
		"internal/wrap":          {ours: []string{".", "internal/guard"}},
		"internal/workspace":     {ours: []string{".", "internal/gitremote", "internal/peer", "pack"}, outside: []string{"golang.org/x/sys"}},
		"internal/ledger/owned":  {ours: []string{"."}, outside: []string{"golang.org/x/sys"}},
		"internal/guestwire":     {},
		"internal/guestagent":    {ours: []string{".", "internal/guestwire", "internal/sandboxdiff"}, outside: []string{"golang.org/x/sys"}},
		"internal/guestclient":   {ours: []string{".", "internal/guestwire"}, outside: []string{"golang.org/x/sys"}},
		"internal/initramfs":     {},
		"internal/sandboxdiff":   {ours: []string{".", "internal/strictjson"}, outside: []string{"golang.org/x/sys"}},
		"internal/ext4":          {},
	}},
	{"services", "state", map[string]imports{
		"internal/applied":       {},
		"internal/approve":       {ours: []string{".", "internal/approvaltext", "internal/passkey"}},
		"internal/broker":        {ours: []string{".", "internal/approvaltext", "internal/approver", "internal/peer", "internal/sigv4", "internal/sshca", "internal/sshsig", "internal/strictyaml"}, outside: []string{"github.com/goccy/go-yaml", "golang.org/x/crypto/ssh"}},
		"internal/hooks":         {ours: []string{".", "hook"}},
		"internal/ledger":        {ours: []string{".", "audit", "internal/receipts", "internal/ledger/owned"}, outside: []string{"golang.org/x/sys"}},
		"internal/notify":        {ours: []string{"."}},
		"internal/webpush":       {ours: []string{"."}},
		"internal/enrol":         {ours: []string{".", "internal/fleet", "internal/fleet/pipe", "internal/safefile"}},
		"internal/auth":          {ours: []string{".", "internal/safefile"}, outside: []string{"golang.org/x/crypto/bcrypt", "golang.org/x/time", "github.com/coreos/go-oidc/v3", "github.com/go-webauthn/webauthn", "golang.org/x/oauth2"}},
		"internal/store":         {ours: []string{"."}, outside: []string{"github.com/jackc/pgx/v5", "github.com/pressly/goose/v3", "modernc.org/sqlite"}},
		"internal/hostdisk":      {ours: []string{".", "internal/remote"}},
		"internal/image":         {ours: []string{".", "internal/ext4", "internal/initramfs", "internal/safefile", "internal/strictjson"}, outside: []string{"golang.org/x/sys"}},
		"internal/vm":            {ours: []string{".", "internal/safefile", "internal/strictjson"}, outside: []string{"golang.org/x/sys"}},
		"internal/ledger/index":  {ours: []string{".", "audit", "internal/ledger", "internal/ledger/owned", "internal/receipts"}, outside: []string{"golang.org/x/sys", "modernc.org/sqlite"}},
		"internal/ledger/notary": {ours: []string{".", "audit", "internal/ledger", "internal/ledger/owned"}, outside: []string{"golang.org/x/mod"}},
	}},
	{"core", "the stages of a call", map[string]imports{
		"internal/gate": {ours: []string{".", "pack"}},
	}},
	{"front ends", "translate a protocol into calls", map[string]imports{
		"internal/agenthook":  {ours: []string{".", "internal/shellparse", "internal/guard", "pack"}},
		"internal/console":    {},
		"internal/mcp":        {ours: []string{".", "internal/approvaltext", "internal/peer", "internal/strangers", "internal/strictjson"}, outside: []string{"github.com/modelcontextprotocol/go-sdk"}},
		"internal/modelproxy": {ours: []string{".", "internal/modelwire", "internal/redact", "internal/safefile"}, outside: []string{"github.com/andybalholm/brotli", "github.com/klauspost/compress/zstd"}},
		"internal/tui":        {ours: []string{".", "internal/approvaltext"}, outside: []string{"charm.land/bubbletea/v2", "github.com/charmbracelet/x/ansi"}},
	}},
	{"APIs", "the contract between processes, and the files that they share", map[string]imports{
		"internal/localapi":         {ours: []string{".", "internal/peer", "internal/terminal"}, outside: []string{"golang.org/x/sys"}},
		"internal/hostapi":          {ours: []string{".", "internal/localapi", "internal/peer"}},
		"internal/localapi/apitype": {ours: []string{".", "audit", "hook", "internal/approve", "internal/approvaltext", "internal/hooks", "internal/agenthook", "internal/localapi", "internal/notify", "internal/packstore", "internal/peer", "internal/policy", "internal/policy/review", "internal/receipts", "internal/redact", "internal/safefile", "internal/settings", "internal/terminal", "internal/tui", "pack", "internal/modelproxy"}},
		"internal/settings":         {ours: []string{".", "internal/approver", "internal/egress", "internal/localapi", "internal/redact", "internal/sshsig", "internal/workspace", "internal/strictjson", "internal/strictyaml"}, outside: []string{"github.com/goccy/go-yaml"}},
		"internal/packstore":        {ours: []string{".", "internal/localapi", "internal/safefile", "internal/terminal", "pack", "pack/clixpack", "packs"}},
		"internal/policyfiles":      {ours: []string{".", "audit", "internal/localapi", "internal/policy", "internal/policy/review", "internal/receipts", "internal/safefile", "internal/terminal", "pack", "internal/strictjson"}},
	}},
	{"processes", "construct and connect everything below", map[string]imports{
		"internal/control": {ours: []string{".", "audit", "internal/approvaltext", "internal/auth", "internal/console", "internal/fleet", "internal/fleet/link", "internal/ledger", "internal/packstore", "internal/passkey", "internal/policy", "internal/policy/review", "internal/policyfiles", "internal/receipts", "internal/store", "internal/webpush", "pack"}, outside: []string{"github.com/danielgtaylor/huma/v2", "golang.org/x/mod"}},
		"internal/gateway": {ours: []string{".", "internal/gate", "internal/localapi", "internal/localapi/apitype", "internal/peer", "internal/redact", "internal/safefile", "internal/settings", "internal/workspace", "pack", "internal/applied", "internal/strictjson"}},
		"internal/server":  {ours: []string{"internal/passkey", ".", "audit", "hook", "internal/approve", "internal/broker", "internal/approvaltext", "internal/socketproxy", "internal/egress", "internal/gate", "internal/gateway", "internal/gitsign", "internal/hooks", "internal/hostapi", "internal/jail", "internal/agenthook", "internal/ledger", "internal/localapi", "internal/localapi/apitype", "internal/mcp", "internal/notify", "internal/packstore", "internal/policy", "internal/policy/review", "internal/policyfiles", "internal/receipts", "internal/safefile", "internal/settings", "internal/sshsig", "internal/terminal", "internal/workspace", "internal/wrap", "pack", "internal/toolsearch", "internal/applied", "internal/strictjson", "internal/ledger/index", "internal/ledger/notary", "internal/remote", "internal/sandbox", "internal/source", "internal/sshca", "internal/toolchain", "internal/modelproxy", "internal/redact", "internal/enrol", "internal/fleet", "internal/approver"}, outside: []string{"golang.org/x/sync"}},
		"internal/sandbox": {ours: []string{".", "internal/hostapi", "internal/safefile", "internal/sandboxdiff", "internal/shellparse"}, outside: []string{"golang.org/x/sys"}},
		"internal/vmhost":  {ours: []string{".", "internal/egress", "internal/guestclient", "internal/guestwire", "internal/hostapi", "internal/localapi", "internal/peer", "internal/safefile", "internal/strictjson", "internal/vm"}, outside: []string{"golang.org/x/sync", "golang.org/x/sys"}},
		"internal/witness": {ours: []string{".", "audit", "internal/localapi", "internal/safefile", "internal/strangers", "internal/terminal"}, outside: []string{"golang.org/x/mod"}},
	}},
	{"command line", "commands, questions and output", map[string]imports{
		"internal/cli":             {ours: []string{".", "audit", "internal/approve", "internal/approvaltext", "internal/agenthook", "internal/localapi", "internal/localapi/apitype", "internal/mcp", "internal/packstore", "internal/policy", "internal/policy/review", "internal/policyfiles", "internal/readonly", "internal/receipts", "internal/redact", "internal/safefile", "internal/settings", "internal/shellparse", "internal/sshca", "internal/strangers", "internal/terminal", "internal/tui", "internal/workspace", "pack", "internal/strictjson", "internal/notify", "internal/hostapi", "internal/modelproxy", "internal/enrol"}, outside: []string{"github.com/pelletier/go-toml/v2", "github.com/spf13/cobra", "github.com/tailscale/hujson"}},
		"internal/cli/direct":      {ours: []string{".", "audit", "hook", "internal/cli", "internal/egress", "internal/gateway", "internal/hooks", "internal/jail", "internal/agenthook", "internal/ledger", "internal/localapi", "internal/localapi/apitype", "internal/notify", "internal/onboard", "internal/packstore", "internal/safefile", "internal/server", "internal/settings", "internal/terminal", "internal/toolchain", "internal/workspace", "internal/wrap", "pack", "internal/ledger/notary", "internal/witness", "internal/readonlyshell", "internal/remote", "internal/source", "internal/sshca", "internal/broker/process", "internal/hostapi", "internal/modelproxy", "internal/hostapply", "internal/image", "internal/hostdisk"}, outside: []string{"golang.org/x/crypto/ssh", "github.com/spf13/cobra"}},
		"internal/broker/process":  {ours: []string{".", "internal/broker", "internal/program"}},
		"internal/control/process": {ours: []string{".", "audit", "internal/safefile", "internal/witness", "internal/auth", "internal/control", "internal/ledger", "internal/store", "internal/strictyaml", "internal/program", "internal/telemetry"}, outside: []string{"github.com/goccy/go-yaml", "golang.org/x/mod"}},
		"internal/bench":           {ours: []string{".", "audit", "hook", "internal/approve", "internal/broker", "internal/approvaltext", "internal/cli", "internal/cli/direct", "internal/egress", "internal/gate", "internal/gateway", "internal/hooks", "internal/jail", "internal/ledger", "internal/localapi", "internal/localapi/apitype", "internal/policy", "internal/policyfiles", "internal/readonly", "internal/redact", "internal/remote", "internal/server", "internal/settings", "internal/source", "internal/sshca", "internal/terminal", "internal/guestclient", "internal/hostapi", "internal/vmhost", "internal/vmhost/process", "internal/modelproxy", "internal/auth", "internal/control", "internal/fleet", "internal/ledger/notary", "internal/store"}, outside: []string{"github.com/cedar-policy/cedar-go", "github.com/spf13/cobra", "golang.org/x/crypto/ssh", "golang.org/x/sync", "github.com/modelcontextprotocol/go-sdk"}},
		"internal/shim":            {ours: []string{".", "internal/localapi", "internal/terminal"}},
		"internal/broker/helper":   {ours: []string{".", "internal/broker", "internal/egress", "internal/jail", "internal/peer"}},
		"internal/vmhost/process":  {ours: []string{".", "internal/hostapi", "internal/image", "internal/localapi", "internal/program", "internal/vm", "internal/vmhost"}},
	}},
	{"programs", "start one package", map[string]imports{
		"cmd/bailey":                {ours: []string{"internal/cli", "internal/cli/direct", "internal/gitsign", "internal/jail"}},
		"cmd/bailey-apply":          {ours: []string{"internal/hostapply"}},
		"cmd/bailey-bench":          {ours: []string{"internal/bench"}},
		"cmd/bailey-broker":         {ours: []string{"internal/broker/process"}},
		"cmd/bailey-server":         {ours: []string{"internal/control/process"}},
		"cmd/bailey-shim":           {ours: []string{"internal/shim"}},
		"cmd/bailey-link":           {ours: []string{"internal/fleet/link"}},
		"cmd/bailey-helper":         {ours: []string{"internal/broker/helper"}},
		"cmd/bailey-guest":          {ours: []string{"internal/guestagent"}},
		"cmd/bailey-host":           {ours: []string{"internal/vmhost/process"}},
		"cmd/bailey-readonly-shell": {ours: []string{"internal/readonlyshell"}},
		"examples/hooks/notify":     {ours: []string{"hook"}},
	}},
	{"tests", "for tests only", map[string]imports{
		"internal/ktest":            {outside: []string{"golang.org/x/sys"}},
		"internal/ktest/sshhost":    {ours: []string{"internal/ktest"}, outside: []string{"golang.org/x/crypto/ssh"}},
		"internal/ktest/guestimage": {ours: []string{"internal/hostapi", "internal/image", "internal/ktest", "internal/localapi"}},
		"internal/ktest/browser":    {ours: []string{"internal/passkey"}, outside: []string{"github.com/descope/virtualwebauthn"}},
		"internal/ktest/pushtest":   {},
		"internal/ktest/chromium":   {ours: []string{"internal/ktest"}, outside: []string{"github.com/chromedp/cdproto", "github.com/chromedp/chromedp"}},
		"internal/ktest/touch":      {outside: []string{"golang.org/x/crypto/ssh"}},
		"internal/jail/battery":     {outside: []string{"golang.org/x/sys"}},
		"packs/hostile":             {},
	}},
}

// rooms has the lines of the table by package, and levels the number of each package's layer.
var rooms, levels = func() (map[string]imports, map[string]int) {
	rooms, levels := map[string]imports{}, map[string]int{}
	for i, l := range layers {
		for dir, may := range l.packages {
			rooms[dir], levels[dir] = may, i
		}
	}
	return rooms, levels
}()

// onlyStd lists the packages that may import only the given standard packages. The trap of the jail runs before all
// other packages initialise only while it depends on no more than these.
var onlyStd = map[string][]string{"internal/jail/inside": {"runtime", "syscall", "unsafe"}}

// inits lists the packages that may have an init function. The trap of the jail must run before other packages
// initialise.
var inits = []string{"internal/jail/inside"}

// banned lists package names that do not describe the purpose of a package.
var banned = []string{"config", "util", "utils", "common", "model", "types", "errors", "logger", "helpers", "pkg"}

type source struct {
	dir, name string
	file      *ast.File
}

// sources opens every .go file itself: the test cache does not notice files that a child process reads.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("only %d files found: this test does not see the module", len(all))
	}
	return all
}

// parsed reads the source once for all tests.
var parsed = sync.OnceValues(func() (all []source, err error) {
	set := token.NewFileSet()
	err = fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, source{path.Dir(name), path.Base(name), f})
		return nil
	})
	return all, err
})

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// TestImports checks every import against the table.
func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || strings.HasPrefix(s.dir, "test/") {
			continue
		}
		room, ok := rooms[s.dir]
		if !ok {
			t.Errorf("%s/%s: the import table has no package %s. Add a line to imports_test.go and to docs/design.md.", s.dir, s.name, s.dir)
			continue
		}
		for _, spec := range s.file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if !allowed(s.dir, name, room.ours, room.outside) {
				t.Errorf("%s/%s imports %s: the import table does not allow it", s.dir, s.name, name)
			}
		}
	}
}

func allowed(dir, name string, ours, outside []string) bool {
	if std, ok := onlyStd[dir]; ok {
		return slices.Contains(std, name)
	}
	switch {
	case name == "bailey":
		return slices.Contains(ours, ".")
	case strings.HasPrefix(name, "bailey/"):
		return slices.Contains(ours, strings.TrimPrefix(name, "bailey/"))
	case !strings.Contains(strings.Split(name, "/")[0], "."):
		return true // the standard library
	}
	return slices.ContainsFunc(outside, func(m string) bool { return name == m || strings.HasPrefix(name, m+"/") })
}

// TestLayers checks that no line of the table permits an import from a higher layer.
func TestLayers(t *testing.T) {
	for dir, may := range rooms {
		for _, other := range may.ours {
			level, known := levels[other]
			if !known || level > levels[dir] {
				t.Errorf("%s (%s) may import %s, which is not below it", dir, layers[levels[dir]].name, other)
			}
		}
	}
}

// light lists packages that must not link the given packages, directly or through another package: their programs start
// for each command.
var light = map[string][]string{
	"internal/cli": {"internal/jail", "internal/ledger", "internal/server", "internal/gateway", "internal/gate", "modernc.org/sqlite"},
}

// TestLightPackages follows every import from each light package.
func TestLightPackages(t *testing.T) {
	imported := importsOf(t)
	for dir, banned := range light {
		seen := map[string]bool{}
		var follow func(dir string)
		follow = func(dir string) {
			seen[dir] = true
			for _, name := range imported[dir] {
				short := strings.TrimPrefix(name, "bailey/")
				if slices.ContainsFunc(banned, func(b string) bool { return short == b || strings.HasPrefix(short, b+"/") }) {
					t.Errorf("%s links %s", dir, short)
				}
				if strings.HasPrefix(name, "bailey/") && !seen[short] {
					follow(short)
				}
			}
		}
		if follow(dir); len(seen) < 10 {
			t.Errorf("%s leads to %d packages: this test does not see it", dir, len(seen))
		}
	}
}

// importsOf returns the imports of the product's files by directory.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	for _, s := range sources(t) {
		for _, spec := range s.file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if !s.test() && !slices.Contains(imports[s.dir], name) {
				imports[s.dir] = append(imports[s.dir], name)
			}
		}
	}
	return imports
}

// longestMain is the maximum number of lines of a program's own package: a program starts one package.
const longestMain = 150

// TestProgramsAreShort counts the lines of each program.
func TestProgramsAreShort(t *testing.T) {
	lines := map[string]int{}
	for _, s := range sources(t) {
		if strings.HasPrefix(s.dir, "cmd/") && !s.test() {
			text, err := os.ReadFile(path.Join(s.dir, s.name))
			if err != nil {
				t.Fatal(err)
			}
			lines[s.dir] += strings.Count(string(text), "\n")
		}
	}
	if len(lines) < 4 {
		t.Errorf("%d programs: this test does not see them", len(lines))
	}
	for dir, n := range lines {
		if n > longestMain {
			t.Errorf("%s has %d lines, want at most %d", dir, n, longestMain)
		}
	}
}

// TestSpineImportsNothingAbove checks the most important lines of the table itself, so that no edit of the table can
// permit more.
func TestSpineImportsNothingAbove(t *testing.T) {
	if got := rooms["internal/gate"].ours; !slices.Equal(got, []string{".", "pack"}) {
		t.Errorf("the spine imports %v; it may import the vocabulary and pack alone", got)
	}
	for _, dir := range []string{"audit", "internal/redact", "internal/peer"} {
		if got := rooms[dir].ours; !slices.Equal(got, []string{"."}) {
			t.Errorf("%s imports %v of ours; it may import the vocabulary alone", dir, got)
		}
	}
	for dir, room := range rooms {
		if strings.HasPrefix(dir, "internal/ktest/") {
			continue // a part of the test room
		}
		if slices.ContainsFunc(room.ours, func(o string) bool { return strings.HasPrefix(o, "cmd/") || o == "internal/ktest" }) {
			t.Errorf("%s imports a program or the test room", dir)
		}
	}
}

// small lists the programs with a small link set, and all packages of this module and external modules that each may
// link, directly or through another package. Of the standard library, they must not link packages that start programs
// or load code (os/exec, plugin), nor database/sql.
var small = map[string]struct{ ours, outside []string }{
	"cmd/bailey-broker": {ours: []string{".", "internal/broker", "internal/broker/process", "internal/approvaltext", "internal/approver", "internal/passkey", "internal/peer", "internal/sigv4", "internal/sshca", "internal/sshsig", "internal/strictyaml", "internal/program"},
		outside: []string{"github.com/goccy/go-yaml", "golang.org/x/crypto/ssh", "golang.org/x/sys"}},
	"cmd/bailey-guest": {ours: []string{".", "internal/guestagent", "internal/guestwire", "internal/sandboxdiff", "internal/strictjson"},
		outside: []string{"github.com/go-json-experiment/json/jsontext", "golang.org/x/sys"}},
	"cmd/bailey-shim": {ours: []string{".", "internal/peer", "internal/shim", "internal/terminal", "internal/localapi"}, outside: []string{"golang.org/x/sys"}},
}

// TestSmallPrograms follows every import from each small program.
func TestSmallPrograms(t *testing.T) {
	imports := importsOf(t)
	for program, may := range small {
		seen := map[string]bool{}
		var follow func(dir string)
		follow = func(dir string) {
			seen[dir] = true
			for _, name := range imports[dir] {
				switch {
				case name == "os/exec" || name == "plugin" || name == "database/sql":
					t.Errorf("%s imports %s, which %s must not link", dir, name, program)
				case !allowed(dir, name, may.ours, may.outside):
					t.Errorf("%s imports %s, which is not for %s to link", dir, name, program)
				case name == "bailey" && !seen["."]:
					follow(".")
				case strings.HasPrefix(name, "bailey/") && !seen[strings.TrimPrefix(name, "bailey/")]:
					follow(strings.TrimPrefix(name, "bailey/"))
				}
			}
		}
		if follow(program); len(seen) < 3 {
			t.Errorf("%s leads to %d rooms: this test is not looking at it", program, len(seen))
		}
	}
}

// TestEveryPackageIsDescribed checks that each package has exactly one package comment.
func TestEveryPackageIsDescribed(t *testing.T) {
	described := map[string]int{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		described[s.dir] += 0
		if s.file.Doc != nil {
			described[s.dir]++
		}
		if name := s.file.Name.Name; slices.Contains(banned, name) {
			t.Errorf("%s: a package named %s says nothing about what it is for", s.dir, name)
		}
	}
	for dir, n := range described {
		if n != 1 {
			t.Errorf("%s has %d package comments, want one", dir, n)
		}
	}
}

// TestNoInit checks that packages have no init functions, because every start of a program pays for them.
func TestNoInit(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" && !slices.Contains(inits, s.dir) {
				t.Errorf("%s/%s has an init function", s.dir, s.name)
			}
		}
	}
}

// TestPlatformsDifferByFile checks that code does not branch on runtime.GOOS: if systems differ, each must have a file
// of its own. The test-only package internal/ktest may print the name of the system.
func TestPlatformsDifferByFile(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || s.dir == "internal/ktest" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "GOOS" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "runtime" {
					t.Errorf("%s/%s asks for runtime.GOOS: give each system a file of its own", s.dir, s.name)
				}
			}
			return true
		})
	}
}

// TestDocumentsStayShort checks that README.md and docs/design.md stay below their promised number of lines, and that
// the lines of README.md have at most 100 columns.
func TestDocumentsStayShort(t *testing.T) {
	for name, most := range map[string]int{"README.md": 200, "docs/design.md": 300} {
		f, err := os.Open(name)
		if err != nil {
			t.Error(err)
			continue
		}
		n := 0
		for lines := bufio.NewScanner(f); lines.Scan(); {
			n++
			if name == "README.md" && utf8.RuneCount(lines.Bytes()) > 100 {
				t.Errorf("README.md:%d has more than 100 columns", n)
			}
		}
		f.Close()
		if n >= most {
			t.Errorf("%s has %d lines, it promises under %d", name, n, most)
		}
	}
}

// TestDependenciesHaveReasons checks that CONTRIBUTING.md gives a reason for each direct dependency.
func TestDependenciesHaveReasons(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	why, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	direct := 0
	for line := range strings.Lines(string(mod)) {
		word := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(word) < 2 || !strings.Contains(word[0], "/") || strings.Contains(line, "// indirect") {
			continue
		}
		direct++
		if !strings.Contains(string(why), word[0]) {
			t.Errorf("CONTRIBUTING.md gives no reason for %s", word[0])
		}
	}
	if direct == 0 || direct > 34 {
		t.Errorf("%d direct dependencies, want one to 34", direct)
	}
}
