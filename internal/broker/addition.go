package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"bailey"
)

// KeyQuestion is a key that an adapter needs, with the question for a person who sets it up.
type KeyQuestion struct {
	Key, Ask string
	Optional bool
}

// SetupQuestions returns the keys of the adapters that ask an issuer.
func SetupQuestions() map[string][]KeyQuestion {
	return map[string][]KeyQuestion{
		"github": {{"app", "client id or app id of the GitHub App", false}, {"key", "file of its private key", false},
			{"installation", "number of the installation (in the address of its settings page)", false},
			{"owner", "account on which it is installed", true},
			{"repositories", "repositories, as [web, api]", false},
			{"permissions", "permissions, as {contents: read, pull_requests: write}", false}},
		"vault": {{"server", "address, https://…", false}, {"ca", "file of its certificate authority", true},
			{"appRole", "login, as {role: ID, secret: FILE}", false},
			{"path", "path of the secret, as secret/data/app or database/creds/app", false}, {"field",
				"field of the secret", true}},
		"aws": {{"role", "ARN of the role", false}, {"region", "region, as eu-central-1", false},
			{"keys", "file with the broker's own keys", false}, {"policy", "file of a session policy", true}},
		"gcloud": {{"account", "service account to act as, as agents@project.iam.gserviceaccount.com", false},
			{"key", "file of the broker's own service account key", false},
			{"scopes", "OAuth scopes, as [https://www.googleapis.com/auth/devstorage.read_only]", false}},
		"azure": {{"tenant", "id of the directory", false}, {"client", "id of the application", false},
			{"token", "file of the federated token", false}, {"resource",
				"resource, as https://management.azure.com", false},
			{"form", "headers for the pack az, or token", true}},
		"infisical": {{"client", "client id of the identity", false}, {"secret", "file of its client secret", false},
			{"project", "id of the project", false}, {"environment", "environment, as prod", false},
			{"path", "path of the secret, as /app", true}, {"name", "name of the secret", false}},
		"exchange": {{"server", "address, https://…", false}, {"path",
			"path of the token endpoint, as oauth2/token", false},
			{"client", "client id", true}, {"secret", "file of its secret", true},
			{"subject", "file of the token that is exchanged", false}, {"audience", "audience of the new token", false},
			{"scopes", "scopes, as [read]", false}, {"revoke",
				"path of the revocation endpoint, as oauth2/revoke", true}},
		"argocd": {{"server", "address, https://…", false}, {"ca", "file of its certificate authority", true},
			{"token", "file of the broker's own token", false}, {"project", "project", false}, {"role", "role of the project", false}},
		"keyring": {{"service", "attribute service of the item", false}, {"account", "attribute account of the item", false}},
		"exec": {{"socket", "socket of bailey-helper", false}, {"uid", "uid of bailey-helper", false},
			{"program", "the helper, an absolute path", false}, {"sha256", "its digest, as sha256sum prints it", false},
			{"egress", "places that it reaches, as [vault.example:443]", true}},
		"kubectl": {{"server", "address of the API server, https://…", false}, {"ca",
			"file of its certificate authority", false},
			{"credential", "file of the broker's own token", false}, {"namespace",
				"namespace of the service account", false},
			{"account", "name of the service account", false}, {"form", "kubeconfig, or token", true}},
	}
}

// Addition is an entry that a person adds to the table.
type Addition struct {
	Lease, Adapter  string
	Keys            [][2]string // names and values, which are written as they are in YAML
	Scope, Approval string      // the approval is YAML
	TTL             string
}

// line returns the entry as one line of the file.
func (a Addition) entryLine() string {
	var keys []string
	for _, k := range a.Keys {
		keys = append(keys, k[0]+": "+k[1])
	}
	text := fmt.Sprintf("  %s: {%s: {%s}", a.Lease, a.Adapter, strings.Join(keys, ", "))
	if a.Scope != "" {
		text += ", scope: " + strconv.Quote(a.Scope)
	}
	if a.TTL != "" {
		text += ", ttl: " + a.TTL
	}
	return text + ", approval: " + a.Approval + "}\n"
}

// AddEntry returns the text of the table in dir with one more entry, and that table. The rest of the file stays as it
// is. Nothing is written.
func AddEntry(dir string, a Addition) (text []byte, t *Table, err error) {
	if !isName(a.Lease) {
		return nil, nil, tableFault("%.60q is not a lease name: use lower case letters, digits, '.', '_' and '-'", a.Lease)
	}
	line := a.entryLine()
	if strings.Count(line, "\n") != 1 || strings.Contains(line, " #") {
		return nil, nil, tableFault("a value of the new entry contains a line end or a comment")
	}
	old, err := readPrivate(filepath.Join(dir, TableName), maxTable)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte("admitted: [] # uids of the gateways that may borrow\nleases:\n"), nil
	}
	if err != nil {
		return nil, nil, err
	}
	before, err := ParseTable(old, dir, Adapters())
	if err != nil {
		return nil, nil, err
	}
	if _, ok := before.Leases[a.Lease]; ok {
		return nil, nil, bailey.Conflict.Errorf("remove or rename that one first",
			"the table has a lease %s already", a.Lease)
	}
	text = insertLine(old, line)
	t, err = ParseTable(text, dir, Adapters())
	if err == nil && len(t.Leases) != len(before.Leases)+1 {
		err = tableFault("cannot add an entry to this layout: write leases: in a line of its own, with an entry on each line below")
	}
	return text, t, err
}

// insertLine puts a line below the key leases, which it adds if it is missing.
func insertLine(text []byte, line string) []byte {
	var out bytes.Buffer
	found := false
	for l := range bytes.Lines(text) {
		out.Write(l)
		if !found && strings.HasPrefix(string(l), "leases:") && strings.TrimSpace(strings.SplitN(string(l)[7:],
			"#", 2)[0]) == "" {
			if !bytes.HasSuffix(l, []byte("\n")) {
				out.WriteByte('\n')
			}
			out.WriteString(line)
			found = true
		}
	}
	if !found {
		if n := out.Len(); n > 0 && out.Bytes()[n-1] != '\n' {
			out.WriteByte('\n')
		}
		out.WriteString("leases:\n" + line)
	}
	return out.Bytes()
}

// WriteTable replaces the file of the table. It takes effect with apply.
func WriteTable(dir string, text []byte) error {
	f, err := os.CreateTemp(dir, TableName+".*")
	if err != nil {
		return unavailableError(err, "check the disk and the owner of the broker's directory",
			"cannot write %s", TableName)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, TableName))
	}
	if err = errors.Join(err, syncDir(dir)); err != nil {
		os.Remove(f.Name())
		return unavailableError(err, "check the disk and the owner of the broker's directory",
			"cannot write %s", TableName)
	}
	return nil
}
