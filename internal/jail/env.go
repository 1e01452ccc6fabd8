//go:build linux

package jail

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// baseEnv is in the environment of every tool. From outside come only the variables that a manifest declares or a lease
// lends.
var baseEnv = [...]string{"PATH=" + searchPath, "HOME=" + homeDir, "USER=" + userName, "LANG=C.UTF-8", "LC_ALL=C.UTF-8",
	"TZ=UTC"}

// fixedEnv lists variables that must not be set: they say where the cage is, and TMPDIR is always /tmp.
var fixedEnv = [...]string{"PATH", "HOME", "USER", "TMPDIR"}

// buildEnv joins the constants and the declared variables. If a name is repeated, the last one holds.
func buildEnv(declared []string) ([]string, error) {
	env := baseEnv[:]
	for _, v := range declared {
		name, err := checkEnv(v)
		if err != nil {
			return nil, err
		}
		env = append(withoutEnv(env, name), v)
	}
	return env, nil
}

// withHomeDir returns env with dir, the call's private directory, as HOME and TMPDIR.
func withHomeDir(env []string, dir string) []string {
	return append(withoutEnv(withoutEnv(env, "HOME"), "TMPDIR"), "HOME="+dir, "TMPDIR="+dir)
}

// addLentEnv joins the lent variables to env. A name that was not planned is an error.
func addLentEnv(env, planned, lent []string) ([]string, error) {
	for _, v := range lent {
		name, err := checkEnv(v)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(planned, name) {
			return nil, bailey.Internal.New(name+" was lent but not planned", "")
		}
		env = append(withoutEnv(env, name), v)
	}
	return env, nil
}

// withoutEnv returns a copy of env that lacks name.
func withoutEnv(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

// checkEnv returns the name in NAME=value. Its errors never contain the value, which may be a secret.
func checkEnv(v string) (string, error) {
	name, value, ok := strings.Cut(v, "=")
	switch {
	case !ok:
		return "", bailey.Invalid.New("an environment variable lacks its value", "write it as NAME=value")
	case !validName(name):
		return "", bailey.Invalid.Errorf("names are letters, digits and _, and do not begin with a digit",
			"%q is no environment name", name)
	case strings.Contains(value, "\x00"):
		return "", bailey.Invalid.New("the value of "+name+" holds a NUL", "")
	case slices.Contains(fixedEnv[:], name):
		return "", bailey.Invalid.New(name+" is the cage's own", "leave "+name+" out")
	}
	return name, nil
}

func validName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// lentDir holds the files that are lent for a call, in a tmpfs of that call, which ends with it.
const lentDir = "/run/bailey/secrets"

// maxLent limits, in bytes, all files that one call is lent.
const maxLent = 1 << 20

// lentEnv returns the variables with the paths of lent files.
func lentEnv(names []string) (env []string) {
	for _, name := range names {
		env = append(env, name+"="+filepath.Join(lentDir, name))
	}
	return env
}

// addLentFiles makes PID 1 write lent files into memory that turns read-only before the tool starts. The values come by
// descriptor when the call starts, and are in no plan.
func (l *layout) addLentFiles(p *plan) {
	if len(l.lent) == 0 {
		return
	}
	flags := uint64(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	p.addStep("tmp-private", inside.Tmpfs, []uint64{flags}, lentDir[1:],
		fmt.Sprintf("mode=0700,size=%d,nr_inodes=%d", 2*maxLent, len(l.lent)+16))
	for _, name := range l.lent {
		p.addStep("tmp-private", inside.Lend, []uint64{0, 0o400, 0}, name, filepath.Join(lentDir, name)[1:])
	}
	p.addStep("tmp-private", inside.Seal, []uint64{readOnly | inert}, lentDir[1:])
}

// A loan holds the lent files of a run by their variables, in sealed memory until the run ends.
type lentFiles map[string]*os.File

// sealLentFiles puts values where PID 1 can read them. Every planned value must be there, and no other.
func sealLentFiles(planned []string, files []bailey.LentFile) (held lentFiles, err error) {
	held = lentFiles{}
	defer func() {
		if err != nil {
			held.giveBack()
		}
	}()
	total := 0
	for _, f := range files {
		total += len(f.Value.Reveal())
		switch {
		case !slices.Contains(planned, f.Env) || held[f.Env] != nil:
			return held, bailey.Internal.New(f.Env+" was lent as a file and not planned so", "")
		case total > maxLent:
			return held, bailey.Invalid.Errorf("bind the credential to a smaller value",
				"what is lent as files has more than %d bytes with %s", maxLent, f.Env)
		}
		if held[f.Env], err = inMemory(f.Value); err != nil {
			return held, bailey.Unavailable.Wrap(err, "no memory file for "+f.Env, "")
		}
	}
	for _, name := range planned {
		if held[name] == nil {
			return held, bailey.Internal.New(name+" was planned as a lent file and not lent", "")
		}
	}
	return held, nil
}

func inMemory(value bailey.Secret) (*os.File, error) {
	memory, err := createMemfd()
	if err != nil {
		return nil, err
	}
	if _, err = io.WriteString(memory, value.Reveal()); err == nil {
		_, err = unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, sealed)
	}
	if err != nil {
		memory.Close()
		return nil, err
	}
	return memory, nil
}

func (l lentFiles) giveBack() {
	for _, f := range l {
		if f != nil {
			f.Close()
		}
	}
}

// fileSize returns the length in bytes of the file of a variable.
func (l lentFiles) fileSize(name string) (uint64, error) {
	f := l[name]
	if f == nil {
		return 0, bailey.Internal.New(name+" was not lent", "")
	}
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return uint64(st.Size), err
}
