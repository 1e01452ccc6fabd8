package broker

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/jail"
	"bailey/internal/jail/battery"
	"bailey/internal/ktest"

	"golang.org/x/sys/unix"
)

// In a cage, this test binary is the tool: the battery, or a search for secrets.
var _ = runCagedTool()

func runCagedTool() bool {
	switch {
	case os.Getenv(battery.Env) == "":
	case len(os.Args) > 1 && os.Args[1] == "search":
		os.Exit(searchCage())
	default:
		os.Exit(battery.Main(os.Args[1:]))
	}
	return true
}

// searchCage prints where the texts on its standard input are, in all that a tool can read.
func searchCage() int {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		return 1
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		self, err = os.Stat(os.Args[0])
	}
	if err != nil {
		return 1
	}
	found := map[string]string{}
	look := func(place string, data []byte) {
		for _, text := range texts {
			if bytes.Contains(data, []byte(text)) {
				found[text] = place
			}
		}
	}
	for _, v := range os.Environ() {
		look("environment", []byte(v))
	}
	searchShared(look)
	filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, "/sys/") {
			return nil
		}
		if strings.HasPrefix(path, "/proc/") {
			if d.Name() == "environ" || d.Name() == "cmdline" {
				data, _ := os.ReadFile(path)
				look(path, data)
			}
			return nil // the rest are no contents of files, or searchShared reads them
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() == self.Size() || // a copy has the texts too
			info.Size() > 16<<20 {
			return nil
		}
		if data, err := os.ReadFile(path); err == nil {
			look(path, data)
		}
		return nil
	})
	json.NewEncoder(os.Stdout).Encode(found)
	return 0
}

// searchShared looks into the memory that this process shares with another or has from a file, into all memory of other
// processes, and at what else can be shared: sockets with an address, segments of System V and keys.
func searchShared(look func(place string, data []byte)) {
	maps, _ := filepath.Glob("/proc/[0-9]*/maps")
	self, _ := os.Readlink("/proc/self/exe")
	for _, file := range maps {
		own := file == fmt.Sprintf("/proc/%d/maps", os.Getpid())
		text, _ := os.ReadFile(file)
		mem, err := os.Open(strings.TrimSuffix(file, "maps") + "mem")
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			var begin, end, offset, inode uint64
			var mode, device string
			if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &begin, &end, &mode, &offset, &device, &inode); err != nil ||
				mode[0] != 'r' || end-begin > 64<<20 || own && mode[3] != 's' && (inode == 0 || strings.HasSuffix(line, " "+self+"\n")) {
				continue // the private memory of this process has the texts themselves, and so has its program
			}
			data := make([]byte, end-begin)
			n, _ := mem.ReadAt(data, int64(begin))
			look(file, data[:n])
		}
		mem.Close()
	}
	for _, list := range []string{"/proc/net/unix", "/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/keys", "/proc/locks"} {
		data, _ := os.ReadFile(list)
		look(list, data)
	}
}

// missingPlace stands for a place that a scene lacks.
const missingPlace = "/nonexistent"

// cagedOutput runs the tool in a cage with a lease and returns what it prints.
func cagedOutput(t *testing.T, cages *jail.Jail, lease bailey.Lease, scene battery.Scene, stdin string, args ...string) string {
	t.Helper()
	text, err := json.Marshal(scene)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	job := bailey.Job{Command: self, Args: args, Env: []string{battery.Env + "=" + string(text)}, NeedsProc: true,
		Limits: bailey.Limits{MemoryBytes: 1 << 30, Tasks: scene.Tasks}, Timeout: 5 * time.Minute}
	if scene.Tasks == 0 {
		job.Limits.Tasks = 64
	}
	for i, dir := range []string{scene.RO, scene.RW} {
		if dir == missingPlace {
			continue
		}
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), dir)
		defer f.Close()
		job.Places = append(job.Places, bailey.Place{Input: "path", Path: dir, File: f, Write: i == 1})
	}
	for _, v := range lease.Env {
		name, _, _ := strings.Cut(v, "=")
		job.EnvNames = append(job.EnvNames, name)
	}
	for _, f := range lease.Files {
		job.FileNames = append(job.FileNames, f.Env)
	}
	run, err := cages.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err, bailey.HintOf(err))
	}
	defer run.Close()
	var stdout, stderr bytes.Buffer
	exit, err := run.Start(t.Context(), bailey.Lent{Env: lease.Env, Files: lease.Files},
		bailey.Streams{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%v, %+v\n%s", err, exit, stderr.String())
	}
	return stdout.String()
}

// longLived returns the words of the broker's own files that are secret.
func longLived(files map[string]string) (list []string) {
	for _, text := range files {
		for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n\t\"=:,[]{}", r) }) {
			if len(word) >= 10 && !strings.HasPrefix(word, "aws_") && !slices.Contains(list, word) {
				list = append(list, word)
			}
		}
	}
	return list
}

// TestNoLongLivedSecretInACage attacks a cage that has the lease of each adapter. The tool finds the value that was lent,
// and nothing of the broker's own credential.
func TestNoLongLivedSecretInACage(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns", "seccomp", "landlock")
	cages, err := jail.New(jail.Config{OnDemand: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cages.Close() })
	cases := issuerCases()
	for name, c := range cases {
		h, _ := withIssuer(t, c)
		l := loanOf("", nil, "free")
		l.Wants[0].File = isLentAsFile(name)
		lease := h.lend(l)
		canary := filepath.Join(h.dir, "canary")
		scene := battery.Scene{Token: rand.Text() + rand.Text(), Canary: canary, Kind: "full", Proc: true, Maskless: true,
			Secret: filepath.Join(h.dir, "own"), RO: missingPlace, RW: missingPlace, Home: "/home/bailey", Tmp: "/tmp", Pids: []int{os.Getpid()},
			Only: []string{"data/secret", "data/secret-magic-link", "data/descriptors", "data/inherited-directory", "data/read-root",
				"data/read-proc-1-environ", "data/read-proc-1-mem", "data/read-proc-1-root", "data/read-proc-1-fd"}}
		putPrivate(t, h.dir, "canary", scene.Token)
		held := 0
		for line := range strings.Lines(cagedOutput(t, cages, lease, scene, "", "all")) {
			var r battery.Result
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Held == "" {
				t.Errorf("%s: %s", name, line)
			}
			held++
		}
		if held != len(scene.Only) {
			t.Errorf("%s: %d probes ran, want %d", name, held, len(scene.Only))
		}
		secrets := longLived(c.files)
		stdin, _ := json.Marshal(append(secrets, value))
		var found map[string]string
		if err := json.Unmarshal([]byte(cagedOutput(t, cages, lease, scene, string(stdin), "search")), &found); err != nil {
			t.Fatal(err)
		}
		if found[value] == "" || len(secrets) == 0 {
			t.Errorf("%s: not live: the lent value was not found, or the broker has no secret: %v", name, found)
		}
		delete(found, value)
		if len(found) > 0 {
			t.Errorf("%s: in the cage are %v", name, found)
		}
		lease.Return()
		h.end()
	}
}
