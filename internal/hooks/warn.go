package hooks

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/hook"
)

// warningKey is one warning of one hook.
type warningKey struct {
	hook int
	Warning
}

// maxTold limits the remembered warnings of a session, and the sessions, because a hook can choose the text of some
// warnings. If the limit is reached, warnings are repeated.
const maxTold = 1 << 10

// newWarnings returns the warnings that are new in a session, and remembers them.
func (d *Dispatcher) newWarnings(s bailey.SessionID, n int, all []Warning) (fresh []Warning) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range all {
		if len(d.told) >= maxTold && d.told[s] == nil || d.told == nil {
			d.told = map[bailey.SessionID]map[warningKey]bool{}
		}
		if d.told[s] == nil || len(d.told[s]) >= maxTold {
			d.told[s] = map[warningKey]bool{}
		}
		if k := (warningKey{n, w}); !d.told[s][k] {
			d.told[s][k] = true
			fresh = append(fresh, w)
		}
	}
	return fresh
}

// Forget deletes the remembered warnings of a session, or of all sessions if s is "", for example after a reload.
func (d *Dispatcher) Forget(s bailey.SessionID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s == "" {
		d.told = nil
	}
	delete(d.told, s)
}

// hiddenFileWarnings warns of arguments that are files outside the hook's cage: a user who writes `python3 ~/hooks/check.py`
// usually means to run that file.
func hiddenFileWarnings(h hook.Hook) (all []Warning) {
	shown := slices.Concat(execTrees[:], readPaths[:], h.Read, h.Write)
	if dir := h.Folder(); dir != "" {
		shown = append(shown, dir)
	}
	for _, word := range h.Argv[1:] {
		info, err := os.Stat(word)
		in := func(dir string) bool { return isWithin(resolveLinks(dir), resolveLinks(word)) }
		if err == nil && filepath.IsAbs(word) && info.Mode().IsRegular() && !slices.ContainsFunc(shown, in) {
			all = append(all, Warning{"hook.sandbox", "it is given " + word + ", which is not visible in its jail",
				"make that the program, with a #! line and mode 755, or name it in filesystem.read"})
		}
	}
	return all
}

// overflowWarnings warns of streams that were longer than the part that is kept.
func overflowWarnings(stdout, stderr bool) (all []Warning) {
	for _, s := range [...]struct {
		name string
		more bool
	}{{"stdout", stdout}, {"stderr", stderr}} {
		if s.more {
			all = append(all, Warning{"hook.buffer", fmt.Sprintf("it wrote more than %d bytes to %s, and the rest was dropped", hook.MaxFrame, s.name), "make it write less"})
		}
	}
	return all
}

const cureNetwork = `name it in hooks.json: "network": {"allow": ["host:443"]}`

// networkWarnings warns of a hook that could not reach a host. If the hook has a network, the proxy reports this. Without a
// network no socket exists and no attempt can be observed, so offline looks for the usual error messages.
func networkWarnings(h hook.Hook, stderr []byte, way bailey.Way) (all []Warning) {
	if way != nil {
		for _, line := range way.Report().Refusals() {
			all = append(all, Warning{"hook.network", line, "name it in network.allow, or change the hook"})
		}
		return all
	}
	if h.Unsandboxed {
		return nil
	}
	for line := range bytes.Lines(stderr) {
		for _, sign := range offlineSigns {
			if bytes.Contains(bytes.ToLower(line), []byte(sign)) {
				return []Warning{{"hook.network",
					"it has no network, but seems to need one: " +
						strings.ToValidUTF8(string(bytes.TrimSpace(line[:min(len(line), 256)])),
							"\ufffd"), cureNetwork}}
			}
		}
	}
	return nil
}

// offlineSigns lists texts that resolvers and clients print if they get no socket: glibc and musl, Python, curl(1), Go, Node.
var offlineSigns = [...]string{"name resolution", "name or service not known", "could not resolve", "couldn't resolve",
	"dial tcp", "eai_again", "socket: permission denied",
	"urlopen error", "network is unreachable", "failed to connect", "couldn't connect", "connect eacces", "socket.py"}
