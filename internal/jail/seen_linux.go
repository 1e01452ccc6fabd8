package jail

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"bailey"
)

// kinds lists the namespaces by their names in /proc/self/ns (namespaces(7)), with their layers.
var kinds = [...]struct{ file, layer string }{
	{"user", "userns"}, {"mnt", "mountns"}, {"pid", "pidns"}, {"net", "netns"}, {"ipc", "ipcns"}, {"uts", "utsns"},
	{"cgroup", "cgroupns"},
}

// lookedAt lists the files that show the other layers (proc_pid_status(5), proc_pid_mountinfo(5)).
var lookedAt = []string{"/proc/self/status", "/proc/self/limits", "/proc/self/mountinfo", "/proc/self/cgroup",
	"/proc/self/net/dev"}

func namespaceFiles() []string {
	var files []string
	for _, k := range kinds {
		files = append(files, "/proc/self/ns/"+k.file)
	}
	return files
}

// ownNamespaces returns the output of readlink for this process; a line is empty if the kernel does not tell.
func ownNamespaces() string {
	var b strings.Builder
	for _, file := range namespaceFiles() {
		text, _ := os.Readlink(file)
		b.WriteString(text + "\n")
	}
	return b.String()
}

// cageObservation is the output of programs that inspected a cage from inside.
type cageObservation struct {
	ours, theirs string // namespaces, one per line, in the order of kinds
	text         string // content of lookedAt, joined
}

// compareLayers checks each layer against the observation. If the observation contradicts a layer, or is missing, the layer
// gets an error: a missing observation must not pass for success.
func compareLayers(layers []Layer, s cageObservation) []Layer {
	ours, theirs := strings.Split(s.ours, "\n"), strings.Split(s.theirs, "\n")
	look := func(name, how string, ok bool) {
		i := slices.IndexFunc(layers, func(l Layer) bool { return l.Name == name })
		if i < 0 {
			return // not promised
		}
		layers[i].How = "seen from inside: " + how
		if !ok && layers[i].Err == nil {
			layers[i].Err = bailey.Unavailable.New("layer "+name+" was set up and cannot be seen from inside ("+how+")",
				"run no calls on this host and report it: see SECURITY.md")
		}
	}
	apart := map[string]bool{}
	for i, k := range kinds {
		apart[k.layer] = i < len(ours) && i < len(theirs) && ours[i] != "" && theirs[i] != "" && ours[i] != theirs[i]
		look(k.layer, "a namespace of its own", apart[k.layer])
	}
	status := parseFields(s.text)
	look("caps-none", "no capability in any set",
		isAllZero(status, "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"))
	look("no-new-privs", "NoNewPrivs is 1", lastWord(status["NoNewPrivs:"]) == "1")
	look("seccomp", "a filter on system calls", lastWord(status["Seccomp:"]) == "2")
	look("session", "leads a session of its own", lastWord(status["NSsid:"]) != "" &&
		lastWord(status["NSsid:"]) == lastWord(status["NSpid:"]))
	look("rlimits", "no core dumps", strings.Join(status["Max"], " ") == "core file size 1 1 bytes")
	look("cgroupns", "a namespace of its own, its own group its root", apart["cgroupns"] && isCgroupRoot(s.text))
	root, tmp := mountOptions(s.text, "/"), mountOptions(s.text, tmpDir)
	look("root-readonly", "the root is read-only", slices.Contains(root, "ro"))
	look("tmp-private", "/tmp is its own, noexec", slices.Contains(tmp, "noexec") && slices.Contains(tmp, "nodev"))
	if up := interfaceNames(s.text); !slices.Equal(up, []string{"lo"}) {
		look("netns", fmt.Sprintf("interfaces %v", up), false)
	}
	return layers
}

// parseFields returns the lines of a text by their first word. Of the limits it keeps only that on core files.
func parseFields(text string) map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(text) {
		if w := strings.Fields(line); len(w) > 1 && (w[0] != "Max" || w[1] == "core") && m[w[0]] == nil {
			m[w[0]] = w[1:]
		}
	}
	return m
}

func lastWord(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

func isAllZero(status map[string][]string, names ...string) bool {
	for _, name := range names {
		if v := lastWord(status[name]); v == "" || strings.Trim(v, "0") != "" {
			return false
		}
	}
	return true
}

// mountOptions returns the options of the topmost mount at a path. They are the sixth field of a line of mountinfo; the path
// is the fifth.
func mountOptions(text, at string) (options []string) {
	for line := range strings.Lines(text) {
		if w := strings.Fields(line); len(w) > 9 && w[4] == at && slices.Contains(w, "-") {
			options = strings.Split(w[5], ",")
		}
	}
	return options
}

// isCgroupRoot tells whether /proc/self/cgroup shows the root as the group of every controller that a cage needs.
func isCgroupRoot(text string) bool {
	for _, c := range wantedControllers[:needed] {
		if _, own, ok := ownCgroup(text, c); !ok || own != "/" {
			return false
		}
	}
	return true
}

// interfaceNames returns the first words of the table in net/dev, which is the end of the text.
func interfaceNames(text string) []string {
	_, table, _ := strings.Cut(text, "Inter-|")
	var names []string
	for line := range strings.Lines(table) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}
