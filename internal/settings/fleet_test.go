package settings

import (
	"slices"
	"testing"

	"bailey"
)

// TestFleetSetting checks which capabilities the setting fleet can name. Without it, none are permitted.
func TestFleetSetting(t *testing.T) {
	t.Parallel()
	none, err := ParseSettings([]byte("workspaces: []\n"))
	if err != nil || none.Fleet.Permits("sandbox.list") || none.Fleet.Permits("") {
		t.Errorf("without the setting: %+v, %v", none.Fleet, err)
	}
	c, err := ParseSettings([]byte("fleet: {calls: [sandbox.create, source.run]}\n"))
	want := []bailey.CapabilityID{"sandbox.create", "source.run"}
	if err != nil || !slices.Equal(c.Fleet.Calls, want) || !c.Fleet.Permits("source.run") || c.Fleet.Permits("source.read_file") {
		t.Errorf("got %+v, %v", c.Fleet, err)
	}
	for _, wrong := range []string{"{calls: [git.push]}", "{calls: ['sandbox.*']}", "{calls: [sandbox.]}", "{calls: sandbox.list}",
		"{calls: [sandbox.list, sandbox.list]}", "{call: [sandbox.list]}", "[sandbox.list]", "{calls: [[sandbox.list]]}"} {
		if _, err := ParseSettings([]byte("fleet: " + wrong + "\n")); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
