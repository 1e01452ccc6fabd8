package pack

import (
	"slices"

	"bailey"
)

// Job returns the checked call in the form that a runner takes. Places are the opened path inputs. The tool runs in the
// place that cwdFromInput names, otherwise in the workspace. A file for standard input is not mounted.
func (m *Capability) Job(args []string, places []bailey.Place) bailey.Job {
	j := bailey.Job{
		Capability: m.ID,
		Command:    m.Command,
		Args:       slices.Clone(args),
		Places:     m.mountedPlaces(places),
		Read:       slices.Clone(m.spec.Sandbox.Read),
		Libs:       slices.Clone(m.spec.Sandbox.Libs),
		Exec:       slices.Clone(m.spec.Sandbox.Exec),
		NeedsProc:  m.spec.Sandbox.Proc,
		Limits:     bailey.Limits{MemoryBytes: m.spec.Sandbox.Memory << 20, Tasks: int(m.spec.Sandbox.Tasks)},
		Timeout:    m.Timeout,
	}
	j.Wall = m.agentJailRights()
	for _, name := range sortedKeys(m.spec.Env) {
		j.Env = append(j.Env, name+"="+m.spec.Env[name])
	}
	for _, c := range m.spec.Credentials {
		if c.File {
			j.FileNames = append(j.FileNames, c.Env)
		} else {
			j.EnvNames = append(j.EnvNames, c.Env)
		}
	}
	for _, p := range places {
		if p.Input == m.spec.Backend.CwdFromInput { // "" is the workspace
			j.Dir = p.Path
		}
	}
	for _, k := range m.spec.Sandbox.Keep {
		for _, p := range places {
			if p.Input == k.Input {
				j.Wall.Keep = append(j.Wall.Keep, p.Path+k.Path)
			}
		}
	}
	for _, h := range m.spec.Sandbox.Hide {
		for _, p := range places {
			if p.Input == h.Input {
				j.Hide = append(j.Hide, p.Path+h.Path)
			}
		}
	}
	return j
}
