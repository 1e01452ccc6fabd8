package shim

import (
	"strings"
	"testing"

	"bailey"
)

// TestVariables checks that a shim refuses to drop a variable that changes the answer of its tool, and names it.
func TestVariables(t *testing.T) {
	for line, name := range map[string]string{
		"go GOOS=windows": "GOOS", "go A=1 CGO_ENABLED=0": "CGO_ENABLED", "go GOFLAGS=-tags=x": "GOFLAGS",
		"git GIT_DIR=../other/.git": "GIT_DIR", "git GIT_INDEX_FILE=/tmp/index": "GIT_INDEX_FILE",
		"npm npm_config_omit=dev": "npm_config_omit", "npm NPM_CONFIG_OMIT=dev": "NPM_CONFIG_OMIT",
		"npm NODE_ENV=production": "NODE_ENV", "cargo CARGO_BUILD_TARGET=x": "CARGO_BUILD_TARGET",
		"kubectl KUBECONFIG=/x": "KUBECONFIG", "helm HELM_KUBETOKEN=x": "HELM_KUBETOKEN", "terraform TF_VAR_a=b": "TF_VAR_a",
		"terraform TF_WORKSPACE=x": "TF_WORKSPACE", "docker DOCKER_HOST=ssh://x": "DOCKER_HOST", "docker DOCKER_CONTEXT=x": "DOCKER_CONTEXT",
		"docker COMPOSE_FILE=x": "COMPOSE_FILE", "podman CONTAINER_HOST=x": "CONTAINER_HOST", "gh GH_REPO=a/b": "GH_REPO",
		"gcloud CLOUDSDK_COMPUTE_ZONE=x": "CLOUDSDK_COMPUTE_ZONE", "az AZURE_DEFAULTS_GROUP=x": "AZURE_DEFAULTS_GROUP",
		"aws AWS_ENDPOINT_URL_S3=x": "AWS_ENDPOINT_URL_S3", "pip PIP_INDEX_URL=x": "PIP_INDEX_URL", "uv UV_INDEX_URL=x": "UV_INDEX_URL",
		"python3 PYTHONPATH=x": "PYTHONPATH", "make MAKEFLAGS=-n": "MAKEFLAGS", "git GIT_EXTERNAL_DIFF=x": "GIT_EXTERNAL_DIFF",
		"argocd ARGOCD_SERVER=x": "ARGOCD_SERVER", "aws AWS_REGION=-x": "",
	} {
		words := strings.Fields(line)
		_, _, err := carryVariables(words[:1], words[1:])
		if bailey.KindOf(err) != bailey.Invalid || name != "" && !strings.HasPrefix(err.Error(), name+" is set") ||
			!strings.Contains(bailey.HintOf(err), "unset "+name) {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, line := range []string{"go GOOS=", "go GIT_DIR=x", "git GOOS=windows", "go GOPATH=/x GOFLAGS=-buildvcs=false",
		"git GIT_DIR=.git GIT_INDEX_FILE=.git/index GIT_AUTHOR_NAME=a", "npm npm_config_user_agent=npm npm_config_cache=/c",
		"kubectl KUBE_EDITOR=vi", "docker DOCKER_HOST=unix:///var/run/docker.sock DOCKER_CONTEXT=default", "aws AWS_ACCESS_KEY_ID=x", "go goos=windows", "go"} {
		words := strings.Fields(line)
		if got, _, err := carryVariables(words[:1], words[1:]); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", line, got, err)
		}
	}
}

// TestCarriedVariables checks that a variable which means an option becomes that option, unless the line has it.
func TestCarriedVariables(t *testing.T) {
	for line, want := range map[string]string{
		"aws s3 ls / AWS_PROFILE=dev":                             "aws s3 ls --profile dev",
		"aws s3 ls / AWS_REGION=a AWS_DEFAULT_REGION=b":           "aws s3 ls --region a",
		"aws s3 ls / AWS_DEFAULT_REGION=b":                        "aws s3 ls --region b",
		"aws s3 ls --region=c / AWS_REGION=a":                     "aws s3 ls --region=c",
		"aws s3 ls / AWS_PROFILE= AWS_REGION=a AWS_REGION=b":      "aws s3 ls --region b",
		"helm list / HELM_NAMESPACE=shop HELM_KUBECONTEXT=x":      "helm list --namespace shop --kube-context x",
		"helm list -nweb / HELM_NAMESPACE=shop":                   "helm list -nweb",
		"gcloud compute ssh vm -- ls / CLOUDSDK_CORE_PROJECT=p-1": "gcloud compute ssh vm --project p-1 -- ls",
		"jq . / AWS_PROFILE=x":                                    "jq .",
	} {
		words, environ, _ := strings.Cut(line, " / ")
		got, carried, err := carryVariables(strings.Fields(words), strings.Fields(environ))
		if err != nil || strings.Join(got, " ") != want || (len(carried) > 0) != (want != words) {
			t.Errorf("%s: %q, %v, %v", line, got, carried, err)
		}
	}
}
