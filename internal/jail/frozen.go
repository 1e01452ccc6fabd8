//go:build linux

package jail

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// frozenDir holds snapshots of files, made when a person was asked about them. Nothing in it is ever executed.
const frozenDir = "/.frozen"

// frozenMark takes the place of a copied program's digest in a plan. The approval request identifies the content of a
// snapshot; a plan must not, since it is kept in clear text.
const frozenMark = "frozen"

// sealed are the seals that a memfd must have so that no process can change it, including its creator (fcntl(2)).
const sealed = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL

// bindFrozen shows the snapshot of a file in place of the file that is now at its path.
func (r *run) bindFrozen(l *layout, p bailey.Place) error {
	var st, held unix.Stat_t
	if p.File == nil || p.Frozen.File == nil || p.Write {
		return bailey.Internal.New(p.Path+" is not a file that can be frozen", "")
	}
	if err := unix.Fstat(int(p.File.Fd()), &st); err != nil {
		return bailey.Invalid.Wrap(err, p.Path+" cannot be bound", "")
	}
	seals, err := unix.FcntlInt(p.Frozen.File.Fd(), unix.F_GET_SEALS, 0)
	if err == nil {
		err = unix.Fstat(int(p.Frozen.File.Fd()), &held)
	}
	if err != nil || seals&sealed != sealed || held.Size != p.Frozen.Size || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return bailey.Internal.Wrap(err, "the copy of "+p.Path+" is not sealed, or belongs to another file", "")
	}
	b, err := l.checkedBind(p.Path, &st)
	if err != nil {
		return err
	}
	b.attrs, b.frozen = readOnly|inert, p.Frozen
	if old, ok := l.binds[p.Path]; ok && (old.frozen == nil || old.frozen.File != p.Frozen.File) {
		return bailey.Conflict.New(p.Path+" is bound twice, to different contents", "name it in one input")
	}
	if r.frozen[p.Path] == nil {
		if r.frozen[p.Path], err = duplicateFile(p.Frozen.File); err != nil {
			return err
		}
	}
	l.binds[p.Path] = b
	return nil
}

// checkFrozenPlaces refuses a snapshot that lies in another place of the call: if the host replaces the file beneath the mount
// (rename(2)), the mount goes, and the tool would read the new file.
func (l *layout) checkFrozenPlaces() error {
	for target, b := range l.binds {
		if over, ok := l.bindAbove(target); b.frozen != nil && ok {
			return bailey.Conflict.Errorf("name the directory alone, or a file outside it",
				"%s is in %s and cannot be kept unchanged", target, over.target)
		}
	}
	return nil
}

// addFrozenSteps makes PID 1 write each snapshot into a tmpfs. It stores in lies, by target, the path of each snapshot.
func (l *layout) addFrozenSteps(p *plan, lies map[string]string) {
	p.addFilled("binds-noexec", frozenDir, inert, l.frozenTargets(), lies, func(t string) step {
		return step{Step: inside.Step{N: []uint64{0, 0o444, uint64(l.binds[t].frozen.Size)}, S: []string{t, "", frozenMark}}}
	})
}

// frozenTargets returns the targets of the binds that show snapshots.
func (l *layout) frozenTargets() (targets []string) {
	for t, b := range l.binds {
		if b.frozen != nil {
			targets = append(targets, t)
		}
	}
	slices.Sort(targets)
	return targets
}

// ofFrozen reports whether a step writes a snapshot. The content of a snapshot is not part of a plan, so a plan with
// one serves only one call.
func ofFrozen(s inside.Step) bool { return s.Op == inside.Copy && len(s.S) > 2 && s.S[2] == frozenMark }

// copySource returns the file that a Copy step writes.
func (r *run) copySource(s inside.Step) (*os.File, error) {
	if !ofFrozen(s) {
		return r.copyOf(s.S[0])
	}
	if r.frozen[s.S[0]] == nil {
		return nil, bailey.Internal.New("no copy of "+s.S[0]+" was made", "")
	}
	return duplicateFile(r.frozen[s.S[0]])
}
