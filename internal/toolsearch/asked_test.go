package toolsearch

import (
	"slices"
	"testing"

	"bailey/internal/ktest"
)

// TestQuestions checks that for a question in a user's words, the right capability is among the first three results.
func TestQuestions(t *testing.T) {
	ktest.Long(t)
	c := builtin(t)
	for question, want := range map[string]string{
		"show me what changed":                      "git.diff",
		"who wrote the last commits?":               "git.log",
		"which branch am I on":                      "git.current-branch",
		"create a new branch":                       "git.branch-create",
		"save my changes as a commit":               "git.commit",
		"push my branch to GitHub":                  "gh.push",
		"are there open pull requests?":             "gh.pr-list",
		"did the checks of my pull request pass":    "gh.pr-checks",
		"list running containers":                   "docker.ps",
		"how much disk space do docker images take": "docker.df",
		"why does my pod crash, show its logs":      "kubectl.logs",
		"what happened in the cluster lately":       "kubectl.events",
		"how much memory are the pods using":        "kubectl.top-pods",
		"list s3 buckets":                           "aws.s3-list",
		"virtual machines in azure":                 "az.vm-list",
		"run the tests of my Go project":            "go.test",
		"does the rust code compile":                "cargo.check",
		"installing npm dependencies":               "npm.install",
		"which python packages are installed":       "pip.list",
		"download a web page":                       "http.get",
		"what's the current time":                   "system.date",
		"values of a helm release":                  "helm.values",
		"format my go code":                         "go.fmt",
		"outdated npm packages":                     "npm.outdated",
		"what am I allowed to do in this namespace": "kubectl.can-i",
		"search the logs in google cloud":           "gcloud.logging-read",
		"which resources does terraform manage":     "terraform.state-list",
		"what has been deployed with argo":          "argocd.app-history",
		"permissions in a gcp project":              "gcloud.iam-policy",
		"environment variables of a container":      "docker.inspect",
	} {
		var first []string
		for _, m := range Search(c, question, 3) {
			first = append(first, string(m.Capability.ID))
		}
		if !slices.Contains(first, want) {
			t.Errorf("%q finds %v, want %s among them", question, first, want)
		}
	}
}
