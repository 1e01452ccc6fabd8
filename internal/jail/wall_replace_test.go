//go:build linux

package jail

import (
	"os"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestWallKeepsUntilReplaced shows the limit of the protection. If the host writes to a kept file, that stays
// protected. If the host replaces it by rename(2), as editors and git do, the mount disappears with the old file, in
// every namespace, and the agent can write the new one. So the kept files must be compared afterwards.
func TestWallKeepsUntilReplaced(t *testing.T) {
	ktest.Long(t)
	for how, c := range map[string]struct {
		change func(path string) error
		kept   bool
	}{
		"written":  {func(path string) error { return os.WriteFile(path, []byte("host\n"), 0o644) }, true},
		"replaced": {func(path string) error { return replaceFile(path, "host\n") }, false},
	} {
		t.Run(how, func(t *testing.T) {
			y := newYard(t)
			job := y.job(t, `echo ready; read line; echo agent >> .envrc`)
			in, wake, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer wake.Close()
			ready, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				ready.Read(make([]byte, 16))
				if err := c.change(y.in(".envrc")); err != nil {
					t.Error(err)
				}
				wake.Write([]byte("go\n"))
			}()
			r, err := y.Plan(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdin: in, Stdout: out})
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(y.in(".envrc"))
			if want := map[bool]string{true: "host\n", false: "host\nagent\n"}[c.kept]; err != nil || string(b) != want || (exit.Code != 0) != c.kept {
				t.Errorf("%+v, %v, %q", exit, err, b)
			}
		})
	}
}

func replaceFile(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o666); err != nil {
		return err
	}
	os.Chmod(path+".new", 0o666)
	return os.Rename(path+".new", path)
}
