package mcp

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var update = flag.Bool("update", false, "write the answers in testdata/revision anew")

// TestRevisions replays one conversation for each revision of the protocol. Lines after "> " are sent, and the answers
// must equal the lines after "< " byte for byte.
func TestRevisions(t *testing.T) {
	files, _ := filepath.Glob("testdata/revision/*.txt")
	if len(files) != len(sdk.SupportedProtocolVersions()) {
		t.Errorf("%d conversations for %d revisions", len(files), len(sdk.SupportedProtocolVersions()))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, want)
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if !*update && !bytes.Equal(got, want) {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

// replay sends each "> " line and writes the answer after it, unless the line is a notification.
func replay(t *testing.T, script []byte) []byte {
	w := dial(t, yard())
	var out bytes.Buffer
	for line := range strings.Lines(string(script)) {
		line = strings.TrimSuffix(line, "\n")
		sent, ok := strings.CutPrefix(line, "> ")
		switch {
		case ok:
			out.WriteString(line + "\n")
			w.send(sent)
			if !strings.Contains(sent, `"method":"notifications/`) {
				out.WriteString("< " + w.recv() + "\n")
			}
		case !strings.HasPrefix(line, "< "):
			out.WriteString(line + "\n")
		}
	}
	return out.Bytes()
}
