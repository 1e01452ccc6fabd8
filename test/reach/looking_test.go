//go:build linux

package reach

import (
	"cmp"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/sigv4"
	"bailey/pack"
	"bailey/packs"
)

// asked is one request as a service received it.
type asked struct {
	what   string // method, host, path and query
	header http.Header
	body   string
}

// A service answers requests from a table, by method, host and path, and records them.
type service struct {
	mu      sync.Mutex
	answers map[string]string
	asked   []asked
}

func (s *service) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	s.mu.Lock()
	s.asked = append(s.asked, asked{r.Method + " " + r.Host + r.URL.RequestURI(), r.Header.Clone(), string(body)})
	at := r.Method + " " + r.Host + r.URL.Path
	answer, ok := s.answers[at]
	for k, v := range s.answers { // or by a word in the body, for services that share an address
		if word, of := strings.CutPrefix(k, at+" "); of && strings.Contains(string(body), word) {
			answer, ok = v, true
		}
	}
	s.mu.Unlock()
	switch {
	case strings.HasPrefix(answer, "<"):
		rw.Header().Set("Content-Type", "text/xml")
	default:
		rw.Header().Set("Content-Type", "application/json")
	}
	if !ok {
		rw.WriteHeader(http.StatusNotFound)
		answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no such thing","code":404}`
	}
	fmt.Fprint(rw, answer)
}

func (s *service) requests() []asked { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.asked) }

// bearer checks that every request had this bearer token.
func (s *service) bearer(t *testing.T, token string) {
	t.Helper()
	all := s.requests()
	for _, r := range all {
		if r.header.Get("Authorization") != "Bearer "+token {
			t.Errorf("%s with %q", r.what, r.header.Get("Authorization"))
		}
	}
	if len(all) == 0 {
		t.Error("nobody asked anything")
	}
}

// installed returns the path of a program, from a directory where a cage looks for it or from PATH. If it is missing,
// the test is skipped.
func installed(t *testing.T, command string) string {
	t.Helper()
	for _, dir := range []string{"/usr/local/bin", "/usr/bin"} {
		if _, err := os.Stat(filepath.Join(dir, command)); err == nil {
			return filepath.Join(dir, command)
		}
	}
	path, err := exec.LookPath(command)
	if err != nil {
		ktest.Missing(t, filepath.Base(command), err)
	}
	return path
}

var looking = sync.OnceValues(func() (*pack.Catalog, error) { return pack.LoadBuiltin(packs.FS) })

// look makes a call of a built-in capability as the gate does, with the given credentials.
func (w *world) look(id bailey.CapabilityID, input map[string]any, secrets map[string]string, more ...string) ended {
	w.t.Helper()
	all, err := looking()
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := all.Lookup(id)
	if err != nil {
		w.t.Fatal(err)
	}
	clean, err := m.Check(input, true)
	if err != nil {
		w.t.Fatal(err)
	}
	paths := map[string]string{}
	var places []bailey.Place
	for _, in := range m.PathInputs() {
		if p, ok := clean[in.Name].(string); ok {
			f, err := os.Open(p)
			if err != nil {
				w.t.Fatal(err)
			}
			w.t.Cleanup(func() { f.Close() })
			paths[in.Name] = p
			places = append(places, bailey.Place{Input: in.Name, Path: p, File: f})
		}
	}
	args, err := m.Render(clean, paths)
	if err != nil {
		w.t.Fatal(err)
	}
	job := m.Job(args, places)
	job.Command = installed(w.t, job.Command)
	named, err := m.Egress(clean)
	if err != nil {
		w.t.Fatal(err)
	}
	var to []bailey.Endpoint
	for _, p := range append(named, more...) {
		e, err := bailey.ParseEndpoint(p)
		if err != nil {
			w.t.Fatal(err)
		}
		to = append(to, e)
	}
	inject, files := lends(w.t, m, clean, secrets)
	if len(to) == 0 {
		return w.alone(job, files)
	}
	return w.runTo(job, false, to, inject, files...)
}

// lends returns the credentials that a capability requests, in the form in which the gate lends them.
func lends(t *testing.T, m *pack.Capability, input map[string]any, secrets map[string]string) (inject []injected, files []bailey.LentFile) {
	for _, want := range m.WantsFor(input) {
		value := bailey.NewSecret(secrets[want.Name])
		if want.Inject == nil {
			files = append(files, bailey.LentFile{Env: want.Env, Value: value})
			continue
		}
		if want.Inject.Sign != "" {
			all, shown, err := pack.SignOutside(want, value)
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range all {
				inject = append(inject, injected{Injection: in})
			}
			files = append(files, bailey.LentFile{Env: want.Env, Value: shown})
			continue
		}
		in := bailey.Injection{Name: want.Env, Placeholder: bailey.NewPlaceholder(), Value: value, To: want.Inject.To, Headers: want.Inject.Headers, Paths: want.Inject.Paths}
		inject = append(inject, injected{in, want.Inject.Shown(in.Placeholder)})
	}
	return inject, files
}

// alone runs a job in a new cage without a network.
func (w *world) alone(job bailey.Job, files []bailey.LentFile) ended {
	w.t.Helper()
	run, err := w.cages.Plan(w.t.Context(), job)
	if err != nil {
		w.t.Fatal(err)
	}
	defer run.Close()
	var out, stderr strings.Builder
	exit, err := run.Start(w.t.Context(), bailey.Lent{Files: files}, bailey.Streams{Stdout: &out, Stderr: &stderr})
	if err != nil {
		w.t.Fatalf("%v: %s%s", err, out.String(), stderr.String())
	}
	return ended{out: out.String(), err: stderr.String(), exit: exit}
}

// answering starts one service for all these names.
func (w *world) answering(answers map[string]string, names ...string) *service {
	s := &service{answers: answers}
	for i, name := range names {
		w.https(name, fmt.Sprintf("93.184.216.%d", 100+i), s)
	}
	return s
}

// kubeconfig returns a file for one server, with the given user entry.
func (w *world) kubeconfig(server, user string) string {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.ca.Raw}))
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: main
clusters: [{name: c, cluster: {server: "%s", certificate-authority-data: %s}}]
users: [{name: u, user: %s}]
contexts: [{name: main, context: {cluster: c, user: u, namespace: web}}]
`, server, ca, user)
}

func (e ended) says(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(e.out, word) {
			t.Errorf("lacks %q: exit %d, %+v\n%s", word, e.exit.Code, e.report, e)
		}
	}
}

const podList = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web-1","namespace":"web"},"status":{"phase":"Running"}}]}`

var kubeAnswers = map[string]string{
	"GET kube.example.com/version":                              `{"major":"1","minor":"32","gitVersion":"v1.32.0"}`,
	"GET kube.example.com/api":                                  `{"kind":"APIVersions","versions":["v1"]}`,
	"GET kube.example.com/apis":                                 `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	"GET kube.example.com/api/v1":                               `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list"],"shortNames":["po"]},{"name":"events","singularName":"event","namespaced":true,"kind":"Event","verbs":["get","list"]}]}`,
	"GET kube.example.com/api/v1/namespaces/web/pods":           podList,
	"GET kube.example.com/api/v1/namespaces/web/pods/web-1":     `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1","namespace":"web"},"spec":{"containers":[{"name":"main"}]}}`,
	"GET kube.example.com/api/v1/namespaces/web/pods/web-1/log": "the first line\n",
	"GET kube.example.com/api/v1/namespaces/web/events":         `{"kind":"EventList","apiVersion":"v1","items":[{"metadata":{"name":"e1","namespace":"web"},"reason":"Pulled","message":"image pulled","involvedObject":{"kind":"Pod","name":"web-1"}}]}`,
}

func TestKubectlLooks(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	s := w.answering(kubeAnswers, "kube.example.com")
	lent := map[string]string{"kubeconfig": w.kubeconfig("https://kube.example.com", "{token: the-bearer}")}
	at := "https://kube.example.com"
	w.look("kubectl.get", map[string]any{"kind": "pods", "server": at}, lent).says(t, "web-1")
	w.look("kubectl.get", map[string]any{"kind": "pods", "name": "web-1", "output": "json", "server": at}, lent).says(t, `"name": "web-1"`)
	w.look("kubectl.describe", map[string]any{"kind": "pods", "name": "web-1", "server": at}, lent).says(t, "web-1")
	w.look("kubectl.logs", map[string]any{"pod": "web-1", "server": at}, lent).says(t, "the first line")
	w.look("kubectl.events", map[string]any{"server": at}, lent).says(t, "image pulled")
	w.look("kubectl.api-resources", map[string]any{"server": at}, lent).says(t, "pods")
	w.look("kubectl.contexts", nil, lent).says(t, "main")
	s.bearer(t, "the-bearer")
	for _, r := range s.requests() {
		if !strings.HasPrefix(r.what, "GET ") {
			t.Errorf("kubectl asked %s", r.what)
		}
	}
}

// TestKubectlWorks checks that commands which change a cluster, read a workspace or start diff work in their cages, and that
// an output of the kubeconfig has no token.
func TestKubectlWorks(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "diff")
	w := newWorld(t)
	pod := kubeAnswers["GET kube.example.com/api/v1/namespaces/web/pods/web-1"]
	answers := map[string]string{
		"POST kube.example.com/api/v1/namespaces/web/pods":         strings.Replace(pod, "web-1", "web-2", 1),
		"PATCH kube.example.com/api/v1/namespaces/web/pods/web-1":  pod,
		"DELETE kube.example.com/api/v1/namespaces/web/pods/web-1": `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
	}
	maps.Copy(answers, kubeAnswers)
	answers["GET kube.example.com/api/v1"] = strings.Replace(answers["GET kube.example.com/api/v1"], `"kind":"Pod","verbs":[`, `"kind":"Pod","verbs":["create","patch","delete",`, 1)
	s := w.answering(answers, "kube.example.com")
	lent := map[string]string{"kubeconfig": w.kubeconfig("https://kube.example.com", "{token: the-bearer}")}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pod.yaml":           "kind: Pod\napiVersion: v1\nmetadata: {name: web-2}\nspec: {containers: [{name: main, image: x}]}\n",
		"kustomization.yaml": "resources: [pod.yaml]\nnamePrefix: new-\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at := "https://kube.example.com"
	files := map[string]any{"dir": dir, "files": []any{"pod.yaml"}, "server": at}
	with := func(more map[string]any) map[string]any { maps.Copy(more, files); return more }
	w.look("kubectl.kustomize", map[string]any{"dir": dir, "path": "."}, nil).says(t, "name: new-web-2")
	w.look("kubectl.create-files", with(map[string]any{"options": []any{"--validate=false"}}), lent).says(t, "pod/web-2 created")
	w.look("kubectl.apply", with(map[string]any{"options": []any{"--validate=false"}}), lent).says(t, "pod/web-2 created")
	w.look("kubectl.diff", with(map[string]any{}), lent).says(t, "+  name: web-2")
	w.look("kubectl.label", map[string]any{"kind": "pods", "words": []any{"web-1", "a=b"}, "server": at}, lent).says(t, "pod/web-1")
	w.look("kubectl.delete", map[string]any{"kind": "pod", "name": "web-1", "options": []any{"--wait=false"}, "server": at}, lent).says(t, `pod "web-1" deleted`)
	w.look("kubectl.dry-run", map[string]any{"dir": dir, "verb": "create", "words": []any{"deployment", "web"}, "dryRun": "client",
		"output": "yaml", "options": []any{"--image=nginx"}}, lent).says(t, "image: nginx")
	s.bearer(t, "the-bearer")
	if r := w.look("kubectl.config", map[string]any{"what": "view"}, lent); strings.Contains(r.String(), "the-bearer") || r.exit.Code != 0 {
		t.Errorf("exit %d\n%s", r.exit.Code, r)
	}

	// a symlink does not lead to what is lent
	for name, to := range map[string]string{"file": "/run/bailey/secrets/KUBE_CREDENTIALS", "secrets": "/run/bailey/secrets", "inner": "pod.yaml"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		r := w.look("kubectl.dry-run", map[string]any{"dir": dir, "verb": "create", "words": []any{"configmap", "x"}, "dryRun": "client",
			"output": "yaml", "fromFiles": []any{name}}, lent)
		if r.exit.Code == 0 || !strings.Contains(r.String(), "too many levels of symbolic links") || strings.Contains(r.String(), "bearer") {
			t.Errorf("%s: exit %d\n%s", name, r.exit.Code, r)
		}
	}

	looked, err := looking()
	if err != nil {
		t.Fatal(err)
	}
	m, err := looked.Lookup("kubectl.apply")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	jobs, err := m.Preview(files, map[string]string{"dir": dir}, []bailey.Place{{Input: "dir", Path: dir, File: f}}, "")
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	jobs[0].Command = installed(t, "kubectl")
	w.alone(jobs[0], nil).says(t, "name: web-2", "image: x")
}

func TestGhLooks(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	s := w.answering(map[string]string{
		"GET api.github.com/repos/o/r/branches":            `[{"name":"main"}]`,
		"GET api.github.com/repos/o/r/actions/runs":        `{"total_count":1,"workflow_runs":[{"id":7,"name":"tests","status":"completed","conclusion":"failure","head_branch":"main","event":"push","workflow_id":3,"created_at":"2026-11-20T10:00:00Z","updated_at":"2026-11-20T10:01:00Z"}]}`,
		"GET api.github.com/repos/o/r/actions/workflows":   `{"total_count":1,"workflows":[{"id":3,"name":"tests","state":"active"}]}`,
		"GET api.github.com/repos/o/r/actions/workflows/3": `{"id":3,"name":"tests","state":"active"}`,
		"POST api.github.com/graphql": `{"data":{"repository":{"id":"R1","name":"r","owner":{"login":"o"},"hasIssuesEnabled":true,
			"pullRequests":{"totalCount":1,"nodes":[{"number":5,"title":"a change","state":"OPEN","headRefName":"b","headRepositoryOwner":{"login":"o"},"isDraft":false,"createdAt":"2026-11-20T10:00:00Z"}],"pageInfo":{"hasNextPage":false}},
			"issues":{"totalCount":1,"nodes":[{"number":6,"title":"a fault","state":"OPEN","updatedAt":"2026-11-20T10:00:00Z"}],"pageInfo":{"hasNextPage":false}},
			"pullRequest":{"number":5,"title":"a change","state":"OPEN","body":"why","author":{"login":"a"},"baseRefName":"main","headRefName":"b","url":"https://github.com/o/r/pull/5"},
			"issue":{"__typename":"Issue","number":6,"title":"a fault","state":"OPEN","body":"how","author":{"login":"a"}}}}}`,
		"POST api.github.com/graphql RepositoryReleaseList": `{"data":{"repository":{"releases":{"nodes":[{"name":"one","tagName":"v1.0.0","publishedAt":"2026-11-20T10:00:00Z"}],"pageInfo":{"hasNextPage":false}}}}}`,
	}, "api.github.com", "evil.example.com")
	lent := map[string]string{"github-token": "ghp_the-real-one"}
	r := "o/r"
	w.look("gh.api", map[string]any{"endpoint": "repos/o/r/branches", "jq": ".[].name"}, lent).says(t, "main")
	w.look("gh.pr-list", map[string]any{"repo": r}, lent).says(t, "a change")
	w.look("gh.pr-view", map[string]any{"repo": r, "number": "5"}, lent).says(t, "a change", "why")
	w.look("gh.issue-list", map[string]any{"repo": r}, lent).says(t, "a fault")
	w.look("gh.issue-view", map[string]any{"repo": r, "number": "6"}, lent).says(t, "a fault")
	w.look("gh.run-list", map[string]any{"repo": r}, lent).says(t, "tests")
	w.look("gh.release-list", map[string]any{"repo": r}, lent).says(t, "v1.0.0")
	for _, r := range s.requests() {
		if auth := r.header.Get("Authorization"); auth != "token ghp_the-real-one" && auth != "Bearer ghp_the-real-one" {
			t.Errorf("%s with %q", r.what, auth)
		}
		if !strings.HasPrefix(r.what, "GET ") && r.what != "POST api.github.com/graphql" || strings.Contains(r.body, "mutation") {
			t.Errorf("gh asked %s %s", r.what, r.body)
		}
	}
}

// signatureFault verifies the signature of a request as AWS does.
func signatureFault(r asked, keys sigv4.Credentials) string {
	made, ok := sigv4.ParseAuthorization(r.header.Get("Authorization"))
	at, err := time.Parse("20060102T150405Z", r.header.Get("X-Amz-Date"))
	switch {
	case !ok || made.ID != keys.ID || r.header.Get("X-Amz-Security-Token") != keys.Session:
		return "it is not signed with these keys"
	case err != nil || time.Since(at).Abs() > 5*time.Minute || made.Day != at.Format("20060102"):
		return "it is not of now"
	case strings.Contains(fmt.Sprint(r.header), "placeholder"):
		return "it has a placeholder"
	}
	method, address, _ := strings.Cut(r.what, " ")
	req, err := http.NewRequest(method, "https://"+address, nil)
	if err != nil {
		return err.Error()
	}
	req.Header = r.header.Clone()
	hash := cmp.Or(r.header.Get("X-Amz-Content-Sha256"), sigv4.HashBody([]byte(r.body)))
	made.Again(req, keys, hash, at)
	if req.Header.Get("Authorization") != r.header.Get("Authorization") {
		return "the signature is another than " + req.Header.Get("Authorization")
	}
	return ""
}

func TestAwsLooks(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	s := w.answering(map[string]string{
		"POST sts.eu-west-1.amazonaws.com/": `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>arn:aws:iam::1:user/a</Arn><UserId>A</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`,
		"GET s3.eu-west-1.amazonaws.com/":   `<ListAllMyBucketsResult><Buckets><Bucket><Name>the-bucket</Name><CreationDate>2026-11-20T10:00:00.000Z</CreationDate></Bucket></Buckets></ListAllMyBucketsResult>`,
		"POST ec2.eu-west-1.amazonaws.com/": `<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet></item></reservationSet></DescribeInstancesResponse>`,
	}, "sts.eu-west-1.amazonaws.com", "ec2.eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com")
	lent := map[string]string{"aws-credentials": "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = the-secret-key\naws_session_token = the-session\n"}
	w.look("aws.caller-identity", map[string]any{"region": "eu-west-1"}, lent).says(t, "123456789012")
	w.look("aws.ec2-instances", map[string]any{"region": "eu-west-1", "query": "Reservations[].Instances[].InstanceId", "output": "text"}, lent).says(t, "i-1")
	w.look("aws.s3-list", map[string]any{"region": "eu-west-1"}, lent).says(t, "the-bucket")
	// The sections of the lent file also have a region.
	lent["aws-credentials"] += "region = eu-west-1\n" + strings.Replace(lent["aws-credentials"], "[default]", "[dev]", 1) + "region = eu-west-1\n"
	w.look("aws.read", map[string]any{"service": "s3", "operation": "ls"}, lent).says(t, "the-bucket")
	w.look("aws.read", map[string]any{"service": "ec2", "operation": "describe-instances", "profile": "dev",
		"args": `["--filters", "Name=tag:a,Values=b", "--query=Reservations[].Instances[].InstanceId", "--output=text"]`}, lent).says(t, "i-1")
	for _, r := range s.requests() {
		if fault := signatureFault(r, sigv4.Credentials{ID: "AKIDEXAMPLE", Secret: "the-secret-key", Session: "the-session"}); fault != "" {
			t.Errorf("%s: %s\n%v", r.what, fault, r.header)
		}
	}
	if n := len(s.requests()); n != 5 {
		t.Errorf("%d requests: %v", n, s.requests())
	}
}

func TestAzLooks(t *testing.T) {
	w := newWorld(t)
	sub := "11111111-2222-3333-4444-555555555555"
	s := w.answering(map[string]string{
		"GET management.azure.com/subscriptions":                            `{"value":[{"subscriptionId":"` + sub + `"}]}`,
		"GET management.azure.com/subscriptions/" + sub + "/resourcegroups": `{"value":[{"name":"the-group"}]}`,
	}, "management.azure.com")
	lent := map[string]string{"azure-headers": `{"Authorization": "Bearer the-bearer"}`}
	w.look("az.subscription-list", nil, lent).says(t, sub)
	w.look("az.group-list", map[string]any{"subscription": sub, "query": "value[].name", "output": "tsv"}, lent).says(t, "the-group")
	s.bearer(t, "the-bearer")
}

func TestGcloudLooks(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	s := w.answering(map[string]string{
		"GET cloudresourcemanager.googleapis.com/v1/projects":                                              `{"projects":[{"projectId":"the-project","name":"p","projectNumber":"1"}]}`,
		"POST logging.googleapis.com/v2/entries:list":                                                      `{"entries":[{"logName":"projects/the-project/logs/x","insertId":"1","textPayload":"the entry","timestamp":"2026-11-20T10:00:00Z"}]}`,
		"GET europe-west1-aiplatform.googleapis.com/v1/projects/the-project/locations/europe-west1/models": `{"models":[{"name":"projects/1/locations/europe-west1/models/9","displayName":"the model"}]}`,
	}, "cloudresourcemanager.googleapis.com", "logging.googleapis.com", "europe-west1-aiplatform.googleapis.com")
	lent := map[string]string{"gcloud-token": "the-bearer"}
	w.look("gcloud.projects-list", nil, lent).says(t, "the-project")
	w.look("gcloud.read", map[string]any{"group": "projects", "verb": "list", "args": `["--format=value(projectId)"]`}, lent).says(t, "the-project")
	w.look("gcloud.logging-read", map[string]any{"project": "the-project", "filter": "severity>=ERROR"}, lent).says(t, "the entry")
	w.look("gcloud-aiplatform.models-list", map[string]any{"project": "the-project", "region": "europe-west1"}, lent).says(t, "the model")
	s.bearer(t, "the-bearer")
}

func TestHelmAsks(t *testing.T) {
	w := newWorld(t)
	installed(t, "helm")
	s := w.answering(map[string]string{
		"GET kube.example.com/version":                       kubeAnswers["GET kube.example.com/version"],
		"GET kube.example.com/api/v1/namespaces/web/secrets": `{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}`,
	}, "kube.example.com")
	lent := map[string]string{"kubeconfig": w.kubeconfig("https://kube.example.com", "{token: the-bearer}")}
	w.look("helm.list", map[string]any{"server": "https://kube.example.com"}, lent).says(t, "NAMESPACE")
	s.bearer(t, "the-bearer")
	for _, r := range s.requests() {
		if !strings.HasPrefix(r.what, "GET ") {
			t.Errorf("helm asked %s", r.what)
		}
	}
}
