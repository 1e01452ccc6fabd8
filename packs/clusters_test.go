package packs_test

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/pack"
)

// clusters are the packs that work with clusters of Kubernetes.
var clusters = []string{"kubectl", "helm", "argocd"}

// TestClusters checks the command line of every capability that works with a cluster.
func TestClusters(t *testing.T) { calls(t, "testdata/clusters.txt", clusters) }

// TestClusterLines checks the capability of command lines as people type them. Lines without one open a terminal, name
// another server, user, token or file of settings, run a program, or read files outside of the directory.
func TestClusterLines(t *testing.T) {
	data, err := os.ReadFile("testdata/clusterlines.txt")
	if err != nil {
		t.Fatal(err)
	}
	list := of(t, clusters)
	for row := range strings.Lines(string(data)) {
		means, line, _ := strings.Cut(strings.TrimSpace(row), " ")
		if means == "#" {
			continue
		}
		var valid []string
		for _, m := range pack.Meanings(list, strings.Fields(line)) {
			if _, err := m.Check(m.Inputs[0], true); err == nil {
				valid = append(valid, string(m.ID))
			}
		}
		if got := cmp.Or(strings.Join(valid, " "), "-"); got != means {
			t.Errorf("%s means %q, want %q", line, got, means)
		}
	}
}

// TestClusterClasses checks that a capability that only reads writes no file, that one whose name or options lose data is
// destructive, and that none runs another program than its tool and diff.
func TestClusterClasses(t *testing.T) {
	loses := regexp.MustCompile(`[.](delete|uninstall|drain|force)|-(prune|force|upsert|delete)\b`)
	for _, m := range of(t, clusters) {
		id := string(m.ID)
		writes := slices.ContainsFunc(m.PathInputs(), func(in pack.PathInput) bool { return in.Write })
		if m.SideEffect == pack.ReadOnly && (writes || m.Reversibility != pack.NothingDone) {
			t.Errorf("%s is readOnly, and writes", id)
		}
		if loses.MatchString(id) != (m.SideEffect == pack.Destructive) && id != "argocd.app-upsert" {
			t.Errorf("%s is %s", id, m.SideEffect)
		}
		if run := m.Job(nil, nil).Exec; len(run) > 0 && !slices.Equal(run, []string{"/usr/bin/diff"}) {
			t.Errorf("%s runs %q", id, run)
		}
		if len(m.Wants()) == 0 && !m.CagedLines() {
			t.Errorf("%s has no credential, and its lines would count outside of a cage", id)
		}
		for _, to := range m.Reaches() {
			if !slices.Contains([]string{"{{ input.server }}", "{{ input.url }}", "{{ input.repo }}", "{{ input.repository }}",
				"hub.helm.sh:443", "artifacthub.io:443"}, to) {
				t.Errorf("%s reaches %s", id, to)
			}
		}
	}
}

// TestClusterOptions checks that no option table has an option that decides where a credential goes, runs a program, or reads
// or writes a file of the machine.
func TestClusterOptions(t *testing.T) {
	never := regexp.MustCompile(`(^| )(--(kubeconfig|server|user|token|cluster|username|password|as|as-group|certificate-authority|` +
		`client-key|client-certificate|insecure-skip-tls-verify|profile|profile-output|cache-dir|raw|tty|stdin|edit|interactive|` +
		`filename|kustomize|patch-file|from-file|privileged|kube-(token|as-[a-z]+|apiserver|ca-file|tls-server-name|insecure-skip-tls-verify)|post-renderer|post-renderer-args|registry-config|` +
		`repository-config|repository-cache|ca-file|cert-file|key-file|keyring|values|set-file|output-dir|enable-dns|` +
		`auth-token|core|insecure|plaintext|header|config|local|local-repo-root|server-crt|client-crt|port-forward|` +
		`preview-changes|file|values-literal-file|helm-set-file)|-[sitHf])([=#\[ ]|$)`)
	for _, m := range of(t, clusters) {
		var schema struct {
			Properties map[string]struct {
				Items struct {
					Bailey struct{ Options string } `json:"x-bailey"`
				}
			}
		}
		if err := json.Unmarshal(m.InputSchema(), &schema); err != nil {
			t.Fatal(err)
		}
		for name, p := range schema.Properties {
			for _, o := range strings.Fields(p.Items.Bailey.Options) {
				other := slices.Contains([]string{"kubectl.grant --user=", "argocd.app-list --cluster=", "helm.template -s=",
					"helm.template-to -s="}, string(m.ID)+" "+o)
				known := other || name == "as" || m.Pack == "argocd" && o == "--values=" || m.Pack == "helm" && o == "-i"
				if never.MatchString(o) && !known {
					t.Errorf("%s takes %s", m.ID, o)
				}
			}
		}
	}
}

// TestClusterRefuses checks that every text input refuses hostile values.
func TestClusterRefuses(t *testing.T) {
	addresses := []string{"argocd.repo-get/address", "helm.repo-index/url"} // data for the tool, which does not ask there
	for _, m := range of(t, clusters) {
		var schema struct {
			Properties map[string]struct{ Type, Format string }
		}
		if err := json.Unmarshal(m.InputSchema(), &schema); err != nil {
			t.Fatal(err)
		}
		for name, p := range schema.Properties {
			if p.Type != "string" || p.Format == "path" || p.Format == "url" || name == pack.StdinInput {
				continue
			}
			for _, word := range append(hostileWords, "/run/bailey/secrets/KUBE_CREDENTIALS", "../x") {
				if strings.Contains(word, "://") && slices.Contains(addresses, string(m.ID)+"/"+name) ||
					name == "remote" || m.ID == "kubectl.may" && strings.HasPrefix(word, "/run") || name == "path" && m.ID == "kubectl.get-raw" {
					continue
				}
				if clean, err := m.Check(map[string]any{name: word}, false); err == nil {
					t.Errorf("%s takes %q as %v", m.ID, word, clean)
				} else if word != "" && !strings.Contains(err.Error(), "/"+name+": ") && name != "chart" {
					t.Errorf("%s does not refuse %s %q: %v", m.ID, name, word, err)
				}
			}
		}
	}
}

// TestClusterRefusesMore checks inputs that are refused together with others.
func TestClusterRefusesMore(t *testing.T) {
	for _, c := range []struct {
		id    bailey.CapabilityID
		input string
	}{
		{"kubectl.get", `{"kind": "secrets"}`},
		{"kubectl.get", `{"kind": "secret"}`},
		{"kubectl.get", `{"kind": "secrets.v1."}`},
		{"kubectl.get", `{"kind": "Secret"}`},
		{"kubectl.get", `{"kind": "pods,secrets"}`},
		{"kubectl.get", `{"kind": "secrets/x"}`},
		{"kubectl.get", `{"kind": "pod/x", "name": "secrets/x"}`},
		{"kubectl.get", `{"kind": "pod/x", "names": ["secret/x"]}`},
		{"kubectl.get", `{"kind": "pods", "output": "go-template-file=/etc/passwd"}`},
		{"kubectl.get", `{"kind": "pods", "output": "jsonpath-file=x"}`},
		{"kubectl.get", `{"kind": "pods", "options": ["--kubeconfig=x"]}`},
		{"kubectl.get", `{"kind": "pods", "server": "http://kube.example.com"}`},
		{"kubectl.get-secrets", `{"kind": "pods"}`},
		{"kubectl.watch", `{"kind": "secrets", "watch": true}`},
		{"kubectl.wait", `{"kind": "secret/x", "output": "yaml", "options": ["--for=create"]}`},
		{"kubectl.get-raw", `{"path": "/api/v1/namespaces/shop/secrets"}`},
		{"kubectl.get-raw", `{"path": "/api/v1/nodes/n/proxy/run"}`},
		{"kubectl.get-raw", `{"path": "/logs/"}`},
		{"kubectl.logs", `{"pod": "web/../x"}`},
		{"kubectl.explain", `{"field": "pods --server=x"}`},
		{"kubectl.apply", `{"dir": ".", "files": ["/etc/passwd"]}`},
		{"kubectl.apply", `{"dir": ".", "files": ["a.yaml,/run/bailey/secrets/KUBE_CREDENTIALS"]}`},
		{"kubectl.apply", `{"dir": ".", "files": ["https://example.com/x.yaml"]}`},
		{"kubectl.apply", `{"dir": ".", "files": ["-"]}`},
		{"kubectl.apply", `{"dir": ".", "files": ["a.yaml"], "options": ["--prune"]}`},
		{"kubectl.apply", `{"dir": ".", "files": ["a.yaml"], "output": "yaml"}`},
		{"kubectl.dry-run", `{"dir": ".", "verb": "apply", "files": ["a.yaml"]}`},
		{"kubectl.dry-run", `{"dir": ".", "verb": "apply", "files": ["a.yaml"], "dryRun": "none"}`},
		{"kubectl.dry-run", `{"dir": ".", "verb": "edit", "dryRun": "client"}`},
		{"kubectl.create-configmap", `{"dir": ".", "name": "x", "fromFiles": ["k=../x"]}`},
		{"kubectl.create-configmap", `{"dir": ".", "name": "x", "fromFiles": ["k=/etc/passwd"]}`},
		{"kubectl.create-configmap", `{"dir": ".", "name": "x", "fromFiles": ["a,/etc/passwd"]}`},
		{"kubectl.create-role", `{"what": "role", "name": "x", "options": ["--user=other"]}`},
		{"kubectl.run", `{"name": "x", "image": "y", "options": ["--overrides={}"]}`},
		{"kubectl.exec", `{"pod": "web-1", "command": []}`},
		{"kubectl.delete", `{"kind": "ns", "name": "shop"}`},
		{"kubectl.delete", `{"kind": "pod/x", "name": "pvc/data"}`},
		{"kubectl.delete", `{"kind": "PersistentVolumeClaim", "name": "data"}`},
		{"kubectl.delete-data", `{"kind": "pod", "name": "x"}`},
		{"kubectl.cp-to", `{"dir": ".", "local": "/run/bailey/secrets/KUBE_CREDENTIALS", "remote": "web-1:/x"}`},
		{"helm.template", `{"dir": ".", "chart": "./web", "values": ["/etc/passwd"]}`},
		{"helm.template", `{"dir": ".", "chart": "../web"}`},
		{"helm.template", `{"dir": ".", "chart": "web/../../x"}`},
		{"helm.template", `{"dir": ".", "chart": "./web", "setFiles": ["k=../x"]}`},
		{"helm.upgrade", `{"dir": ".", "release": "web", "chart": "bitnami/redis"}`},
		{"helm.upgrade", `{"dir": ".", "release": "web", "chart": "./web", "options": ["--force"]}`},
		{"helm.dry-run", `{"dir": ".", "verb": "upgrade", "words": ["web", "./web"], "dry": []}`},
		{"helm.dry-run", `{"dir": ".", "verb": "upgrade", "words": ["web", "./web"], "dry": ["--dry-run=none"]}`},
		{"argocd.app-sync", `{"apps": ["web"], "options": ["--prune"]}`},
		{"argocd.app-set", `{"app": "web", "options": ["--sync-option=Replace=true"]}`},
		{"argocd.app-get", `{"app": "web --core"}`},
		{"argocd.app-get", `{"app": "web", "server": "http://argo.example.com"}`},
		{"argocd.app-delete", `{"apps": ["web"]}`},
	} {
		m, err := catalog(t).Lookup(c.id)
		if err != nil {
			t.Fatal(err)
		}
		var input map[string]any
		if err := json.Unmarshal([]byte(c.input), &input); err != nil {
			t.Fatal(c.input, err)
		}
		if _, err := m.Check(input, false); err == nil {
			t.Errorf("%s takes %s", c.id, c.input)
		}
	}
}

// TestKubectlAnswersTheSame checks that lines which need no cluster have the output and the exit code of kubectl itself.
func TestKubectlAnswersTheSame(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "kubectl")
	dir, home := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"base/kustomization.yaml": "resources: [app.yaml]\nnamePrefix: x-\n",
		"base/app.yaml":           "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {k: v}\n",
		"kubeconfig": `apiVersion: v1
kind: Config
current-context: main
clusters: [{name: c, cluster: {server: "https://kube.invalid"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: main, context: {cluster: c, user: u, namespace: web}}]
`,
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "TERM=dumb", "NO_PROXY=*"}
	config := "KUBECONFIG=" + filepath.Join(dir, "kubeconfig")
	for _, line := range []string{
		"kubectl kustomize base",
		"kubectl version --client",
		"kubectl version --client -o yaml",
		"kubectl config view",
		"kubectl config view --minify -o=json",
		"kubectl config current-context",
		"kubectl config get-contexts",
		"kubectl config get-contexts -o name",
		"kubectl config get-clusters",
		"kubectl create deployment web --image=nginx --replicas=2 --dry-run=client -o yaml",
		"kubectl create configmap web --from-file=base/app.yaml --from-literal=a=b --dry-run=client -o=name",
		"kubectl create job a --image=b --dry-run=client -o json -- sleep 5",
	} {
		words := strings.Fields(line)
		found := pack.Meanings(of(t, clusters), words)
		if len(found) != 1 || len(found[0].Inputs) != 1 {
			t.Errorf("%s: %d meanings", line, len(found))
			continue
		}
		input, paths := found[0].Inputs[0], map[string]string{}
		if _, reads := input["dir"]; reads {
			input["dir"], paths["dir"] = dir, dir
		}
		j := job(t, found[0].ID, input, paths)
		got := outputOf(t, dir, append(append(env, j.Env...), config), j.Command, j.Args...)
		if want := outputOf(t, dir, append(env, config), "kubectl", words[1:]...); got != want || found[0].SideEffect != pack.ReadOnly {
			t.Errorf("%s: %s\n%s\nwant\n%s", line, found[0].SideEffect, got, want)
		}
	}
}
