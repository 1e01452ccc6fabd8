package hostapply

import (
	"strings"
	"testing"
	"time"
)

func goodRequest() Request {
	return Request{SHA256: Digest([]byte("x")), Host: HostID([]byte("key")), Call: strings.Repeat("0f", 16), Until: time.Unix(1_800_000_000, 0)}
}

// TestParseCommand checks that a request is read as it was written, and which force-commands are refused.
func TestParseCommand(t *testing.T) {
	r := goodRequest()
	command := Path + " " + strings.Join(r.Options(), " ")
	if got, err := ParseCommand(command); err != nil || got != r {
		t.Errorf("%+v %v", got, err)
	}
	for name, bad := range map[string]string{
		"nothing":       "",
		"other program": "/bin/sh " + strings.Join(r.Options(), " "),
		"no digest":     Path + " " + strings.Join(r.Options()[1:], " "),
		"no time":       Path + " " + strings.Join(r.Options()[:3], " "),
		"twice":         command + " --sha256=" + r.SHA256,
		"more":          command + " --force",
		"upper case":    strings.Replace(command, "--sha256="+r.SHA256, "--sha256="+strings.ToUpper(r.SHA256), 1),
		"short":         strings.Replace(command, r.SHA256, r.SHA256[:62], 1),
		"path as call":  strings.Replace(command, r.Call, "../../../../etc/passwd", 1),
		"negative time": strings.Replace(command, "=1800000000", "=-1800000000", 1),
		"two spaces":    strings.Replace(command, " --host", "  --host", 1),
	} {
		if bad == command {
			t.Errorf("%s: the command is unchanged", name)
		}
		if got, err := ParseCommand(bad); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// FuzzApplyCommand checks that an accepted force-command has each option once, and that its names are no paths.
func FuzzApplyCommand(f *testing.F) {
	f.Add(Path + " " + strings.Join(goodRequest().Options(), " "))
	f.Add("bailey-apply --sha256= --host=")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseCommand(text)
		if err != nil {
			return
		}
		if !isHex(r.SHA256, 32) || !isHex(r.Host, 32) || !isHex(r.Call, 16) || r.Until.Unix() <= 0 || strings.Count(text, " ") != 4 {
			t.Errorf("%q: %+v", text, r)
		}
	})
}
