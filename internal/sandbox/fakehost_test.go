//go:build linux || darwin

package sandbox

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/peer"
	"bailey/internal/sandboxdiff"
)

// fakeHost answers as hostapi describes, and refuses what it does not describe: unknown fields, an owner without names, a
// relative path, an image that is missing.
type fakeHost struct {
	t       *testing.T
	socket  string
	mu      sync.Mutex
	boxes   []hostapi.Sandbox
	files   map[string][]byte // id and path
	jobs    map[string]hostapi.Job
	shots   []hostapi.Snapshot
	command hostapi.Command // the last one
	owners  []hostapi.Owner // of all queries
	digest  string          // of the image, if it has changed
	made    int             // how many sandboxes were created
	broken  string          // verb at which the connection closes without an answer
	listing func(id string) // called while a sandbox lists its files
}

func startFakeHost(t *testing.T) *fakeHost {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h := &fakeHost{t: t, socket: filepath.Join(dir, "host.sock"), files: map[string][]byte{}, jobs: map[string]hostapi.Job{}}
	l, err := peer.Listen(h.socket)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { h.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return h
}

// state is what a test looks at.
type state struct {
	boxes   []hostapi.Sandbox
	files   map[string][]byte
	command hostapi.Command
	owners  []hostapi.Owner
	made    int
}

// seen returns a copy of what the host has seen.
func (h *fakeHost) seen() state {
	h.mu.Lock()
	defer h.mu.Unlock()
	return state{slices.Clone(h.boxes), maps.Clone(h.files), h.command, slices.Clone(h.owners), h.made}
}

func (h *fakeHost) client() (*hostapi.Client, error) { return &hostapi.Client{Socket: h.socket}, nil }

func (h *fakeHost) serve(conn *peer.Conn) {
	defer conn.Close()
	kind, b, err := conn.ReadFrame()
	var q hostapi.Query
	if err != nil || kind != localapi.FrameQuery || strict(b, &q) != nil || q.Protocol != hostapi.Protocol {
		h.t.Errorf("a query of kind %q: %s %v", kind, b, err)
		return
	}
	h.mu.Lock()
	h.owners = append(h.owners, q.Owner)
	broken := h.broken == q.Verb
	h.mu.Unlock()
	if broken {
		return
	}
	answer, err := any(nil), error(nil)
	if q.Verb == hostapi.ExecVerb {
		answer, err = h.exec(conn, q)
	} else {
		answer, err = h.answer(q)
	}
	if err != nil {
		conn.WriteJSON(localapi.FrameError, localapi.NewFailure(err))
		return
	}
	conn.WriteJSON(localapi.FrameResult, answer)
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// find returns the sandbox of an owner.
func (h *fakeHost) find(o hostapi.Owner, name string) (*hostapi.Sandbox, error) {
	for i := range h.boxes {
		b := &h.boxes[i]
		if (b.ID == name || b.Name == name) && b.Owner.Person == o.Person && (b.Owner.Agent == o.Agent || o.Operator) {
			return b, nil
		}
	}
	return nil, bailey.NotFound.Errorf("bailey sandbox list shows yours", "there is no sandbox %s", name)
}

// exec prints the words of the command and its input. The exit code is the last word if it is a number.
func (h *fakeHost) exec(conn *peer.Conn, q hostapi.Query) (any, error) {
	var c hostapi.Command
	if err := strict(q.Request, &c); err != nil {
		return nil, bailey.Invalid.Wrap(err, "malformed", "")
	}
	h.mu.Lock()
	_, err := h.find(q.Owner, c.Sandbox)
	h.command = c
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if c.Dir != "" && !filepath.IsAbs(c.Dir) || len(c.Argv) == 0 || c.Timeout <= 0 {
		return nil, bailey.Invalid.New("malformed command", "")
	}
	if slices.Equal(c.Argv, inventoryCommand) {
		h.mu.Lock()
		listing := h.listing
		h.mu.Unlock()
		if listing != nil {
			listing(c.Sandbox)
		}
		return h.listFiles(conn, c.Sandbox)
	}
	conn.WriteFrame(localapi.FrameStdout, []byte(strings.Join(c.Argv, "|")+"\n"))
	for c.Input {
		kind, b, err := conn.ReadFrame()
		if err != nil || kind == localapi.FrameEnd {
			break
		}
		conn.WriteFrame(localapi.FrameStdout, b)
		conn.WriteJSON(hostapi.FrameCredit, len(b))
	}
	conn.WriteFrame(localapi.FrameStderr, []byte("done\n"))
	var exit hostapi.Exit
	fmt.Sscan(c.Argv[len(c.Argv)-1], &exit.Code)
	if c.Argv[0] == "signal" {
		exit.Signal = exit.Code
	}
	return exit, nil
}

// listFiles answers as bailey-guest inventory: the files of /etc.
func (h *fakeHost) listFiles(conn *peer.Conn, id string) (any, error) {
	v := sandboxdiff.Inventory{Version: sandboxdiff.Version}
	h.mu.Lock()
	for at, data := range h.files {
		if name, ok := strings.CutPrefix(at, id); ok && strings.HasPrefix(name, "/etc/") {
			sum, text := sha256.Sum256(data), sandboxdiff.Text(data)
			v.Files = append(v.Files, sandboxdiff.File{Path: sandboxdiff.Text(name), Type: sandboxdiff.Regular, Mode: 0o644, Owner: "root",
				Group: "root", Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:]), Content: &text})
		}
	}
	h.mu.Unlock()
	var b bytes.Buffer
	if err := v.WriteJSON(&b); err != nil {
		return nil, err
	}
	conn.WriteFrame(localapi.FrameStdout, b.Bytes())
	return hostapi.Exit{}, nil
}

func (h *fakeHost) answer(q hostapi.Query) (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if q.Owner.Person == "" || q.Owner.Agent == "" || q.Owner.Operator {
		return nil, bailey.Invalid.New("the owner of a call has a person and an agent", "")
	}
	var r struct {
		Sandbox, Name, Image, Snapshot, Path, ID string
		Network                                  *hostapi.Network
		Before, After                            string
		CPUs, MemoryMB, N, Bytes, Signal         int
		TTL                                      time.Duration
		Limit                                    int64
		Data                                     []byte
		Mode, UID, GID                           uint32
		Parents, All                             bool
		Argv, Env                                []string
		Dir                                      string
	}
	if err := strict(q.Request, &r); err != nil {
		return nil, bailey.Invalid.Wrap(err, "malformed", "")
	}
	switch q.Verb {
	case "take-egress":
		if _, err := h.find(q.Owner, r.Sandbox); err != nil {
			return nil, err
		}
		return bailey.EgressReport{EgressTotals: bailey.EgressTotals{Connections: 1}}, nil
	case "status":
		return hostapi.Status{Accelerator: "emulated", CPUs: 2, MemoryMB: 4096}, nil
	case "list":
		mine := []hostapi.Sandbox{}
		for _, b := range h.boxes {
			if _, err := h.find(q.Owner, b.ID); err == nil {
				mine = append(mine, b)
			}
		}
		return mine, nil
	case "snapshots":
		return append([]hostapi.Snapshot{}, h.shots...), nil
	case "remove-snapshot":
		return hostapi.None{}, nil
	case "create":
		if r.Image != "debian" && r.Snapshot == "" {
			return nil, bailey.NotFound.Errorf("", "there is no image %s", r.Image)
		}
		made := hostapi.Sandbox{Name: r.Name, Image: "debian", CPUs: r.CPUs, MemoryMB: r.MemoryMB, From: r.Snapshot,
			Expires: time.Unix(0, 0).Add(r.TTL)}
		if r.Network != nil {
			made.Network, made.Egress = hostapi.NamesNetwork, r.Network.Endpoints
		}
		return h.add(q.Owner, made), nil
	}
	b, err := h.find(q.Owner, r.Sandbox)
	if err != nil {
		return nil, err
	}
	at := b.ID + r.Path
	if r.Path != "" && !filepath.IsAbs(r.Path) {
		return nil, bailey.Invalid.New("the path is not absolute", "")
	}
	switch q.Verb {
	case "show":
		return *b, nil
	case "start", "stop", "pause", "resume":
		next := map[string]hostapi.State{"start": hostapi.Running, "stop": hostapi.Stopped, "pause": hostapi.Paused, "resume": hostapi.Running}
		if q.Verb == "start" && b.State == hostapi.Paused {
			return nil, bailey.Conflict.New("it is paused", "resume it")
		}
		b.State = next[q.Verb]
		return *b, nil
	case "extend":
		b.Expires = time.Unix(0, 0).Add(r.TTL)
		return *b, nil
	case "destroy":
		b.ID, b.Name = "gone", "gone"
		return hostapi.None{}, nil
	case "branch":
		list := []hostapi.Sandbox{}
		for range r.N {
			list = append(list, h.add(q.Owner, hostapi.Sandbox{Image: b.Image, From: b.ID}))
		}
		return list, nil
	case "snapshot":
		h.shots = append(h.shots, hostapi.Snapshot{ID: "sn-" + strings.Repeat("a", 26), Name: r.Name, Sandbox: b.ID, Image: b.Image, ImageDigest: b.ImageDigest, Owner: q.Owner})
		return h.shots[len(h.shots)-1], nil
	case "restore":
		b.From = r.Snapshot
		return *b, nil
	case "write-file":
		h.files[at] = r.Data
		return hostapi.File{Name: r.Path, Size: int64(len(r.Data)), Mode: r.Mode}, nil
	case "read-file":
		data, ok := h.files[at]
		if !ok {
			return nil, bailey.NotFound.Errorf("", "%s does not exist", r.Path)
		}
		return hostapi.Content{Data: data}, nil
	case "edit-file":
		n := strings.Count(string(h.files[at]), r.Before)
		if n != 1 && !r.All || n == 0 {
			return nil, bailey.Conflict.Errorf("", "the text is there %d times", n)
		}
		h.files[at] = []byte(strings.ReplaceAll(string(h.files[at]), r.Before, r.After))
		return hostapi.Edited{Count: n}, nil
	case "list-files":
		return []hostapi.File{{Name: "a"}}, nil
	case "start-job":
		j := hostapi.Job{ID: "1", Argv: r.Argv, PID: 7, Running: true, Output: 3}
		h.jobs[b.ID+j.ID] = j
		return j, nil
	case "jobs":
		return []hostapi.Job{h.jobs[b.ID+"1"]}, nil
	case "job-output", "kill-job":
		j, ok := h.jobs[b.ID+r.ID]
		if !ok {
			return nil, bailey.NotFound.New("there is no such job", "")
		}
		if q.Verb == "job-output" {
			return hostapi.JobOutput{Job: j, Output: []byte("abc")}, nil
		}
		j.Running, j.Exit = false, hostapi.Exit{Signal: 9}
		h.jobs[b.ID+r.ID] = j
		return j, nil
	}
	return nil, bailey.Invalid.Errorf("", "unknown operation %s", q.Verb)
}

func (h *fakeHost) add(o hostapi.Owner, b hostapi.Sandbox) hostapi.Sandbox {
	b.ID = "sb-" + strings.Repeat("a", 25) + string(rune('a'+len(h.boxes)))
	h.made++
	b.ImageDigest, b.Owner, b.State, b.Accelerator, b.Machine = strings.Repeat("d", 64), o, hostapi.Running, "emulated", "microvm"
	b.Network = cmp.Or(b.Network, hostapi.NoNetwork)
	if h.digest != "" {
		b.ImageDigest = h.digest
	}
	h.boxes = append(h.boxes, b)
	return b
}
