//go:build linux

package jail

import (
	"fmt"
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

// buildEnv joins the constants and the declared variables. If a name is repeated, the last one holds.
func buildEnv(declared []string) ([]string, error) {
	return cageRules.addDeclared(baseEnv[:], declared)
}

// withHomeDir returns env with dir, the call's private directory, as HOME and TMPDIR.
func withHomeDir(env []string, dir string) []string {
	return append(cageRules.without(cageRules.without(env, "HOME"), "TMPDIR"), "HOME="+dir, "TMPDIR="+dir)
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
			return held, bailey.Internal.New(f.Env+" was lent as a file, but not planned as one", "")
		case total > maxLent:
			return held, bailey.Invalid.Errorf("bind the credential to a smaller value",
				"the files lent to the call exceed %d bytes with %s", maxLent, f.Env)
		}
		if held[f.Env], _, err = sealInMemory(strings.NewReader(f.Value.Reveal())); err != nil {
			return held, bailey.Unavailable.Wrap(err, "cannot create a memory file for "+f.Env, "")
		}
	}
	for _, name := range planned {
		if held[name] == nil {
			return held, bailey.Internal.New(name+" was planned as a lent file but not lent", "")
		}
	}
	return held, nil
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
