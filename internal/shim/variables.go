package shim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
)

// toolVariables says what becomes of the variables of the caller with which tools give another answer. A call gets no
// variable of its caller: each is carried as an argument, which policy and receipt see, or the line is refused. A
// final * means all names that begin so. Variables that a pack sets or a lease stands for, such as tokens and keys, and places of
// caches are not among them.
type toolVariables struct {
	tools   string            // separated by blanks
	carried map[string]string // a variable, and the option that means the same at every place of a line
	refused string            // separated by blanks
}

func knownVariables() []toolVariables {
	return []toolVariables{
		{"go gofmt", nil, `
			GOOS GOARCH GOAMD64 GOARM GOARM64 GO386 GOMIPS GOWASM GOEXPERIMENT GOFLAGS GOWORK GO111MODULE
			CGO_ENABLED
		`},
		{"git", nil, `
			GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_NAMESPACE GIT_CONFIG
			GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_EXTERNAL_DIFF GIT_DIFF_OPTS
			GIT_ATTR_SOURCE GIT_LITERAL_PATHSPECS GIT_GLOB_PATHSPECS GIT_NOGLOB_PATHSPECS GIT_ICASE_PATHSPECS
		`},
		{"npm npx pnpm yarn node", nil, `
			NODE_ENV NODE_OPTIONS npm_config_omit npm_config_include npm_config_production npm_config_only
			npm_config_dev npm_config_workspace npm_config_workspaces npm_config_global npm_config_registry
			npm_config_force npm_config_legacy_peer_deps npm_config_ignore_scripts npm_config_tag npm_config_dry_run
			npm_config_json npm_config_offline npm_config_package_lock npm_config_save npm_config_save_dev
			npm_config_depth
		`},
		{"cargo", nil, "RUSTFLAGS CARGO_BUILD_* CARGO_TARGET_* CARGO_PROFILE_* RUSTUP_TOOLCHAIN"},
		{"pip pip3", nil, `
			PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX PIP_CONSTRAINT PIP_REQUIREMENT PIP_TARGET
			PIP_PREFIX PIP_USER PIP_PRE PIP_NO_DEPS PIP_NO_BINARY PIP_ONLY_BINARY PIP_FORMAT PIP_UPGRADE PIP_DRY_RUN
			PYTHONPATH
		`},
		{"python python3", nil, "PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONWARNINGS PYTHONHASHSEED PYTHONSAFEPATH"},
		{"uv", nil, `
			UV_INDEX* UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_PYTHON UV_PROJECT* UV_FROZEN UV_LOCKED UV_OFFLINE
			UV_RESOLUTION UV_PRERELEASE UV_CONSTRAINT
		`},
		{"make", nil, "MAKEFILES MAKEFLAGS"},
		{"terraform", nil, "TF_VAR_* TF_CLI_ARGS* TF_WORKSPACE TF_DATA_DIR TF_LOG* TF_IN_AUTOMATION"},
		{"kubectl", nil, "KUBECONFIG KUBECTL_*"},
		{"helm", map[string]string{
			"HELM_NAMESPACE":   "--namespace",
			"HELM_KUBECONTEXT": "--kube-context",
		}, `
			KUBECONFIG HELM_KUBEAPISERVER HELM_KUBEASGROUPS HELM_KUBEASUSER HELM_KUBECAFILE
			HELM_KUBEINSECURE_SKIP_TLS_VERIFY HELM_KUBETLS_SERVER_NAME HELM_KUBETOKEN HELM_DRIVER HELM_MAX_HISTORY
			HELM_DEBUG
		`},
		{"argocd", nil, "KUBECONFIG ARGOCD_SERVER ARGOCD_OPTS"},
		{"aws", map[string]string{
			"AWS_DEFAULT_OUTPUT": "--output",
			"AWS_DEFAULT_REGION": "--region",
			"AWS_PROFILE":        "--profile",
			"AWS_REGION":         "--region",
		}, `
			AWS_DEFAULT_PROFILE AWS_ENDPOINT_URL* AWS_USE_FIPS_ENDPOINT AWS_USE_DUALSTACK_ENDPOINT
		`},
		{"gcloud", map[string]string{"CLOUDSDK_CORE_PROJECT": "--project"}, `
			CLOUDSDK_ACTIVE_CONFIG_NAME CLOUDSDK_CORE_ACCOUNT CLOUDSDK_CORE_FORMAT CLOUDSDK_COMPUTE_* CLOUDSDK_RUN_*
			CLOUDSDK_CONTAINER_* CLOUDSDK_API_ENDPOINT_OVERRIDES_* CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT
		`},
		{"az", nil, "AZURE_DEFAULTS_* AZURE_CORE_OUTPUT AZURE_CORE_ONLY_SHOW_ERRORS AZURE_CLOUD_NAME"},
		{"gh", nil, "GH_REPO GH_HOST"},
		{"docker", nil, "DOCKER_HOST DOCKER_CONTEXT DOCKER_DEFAULT_PLATFORM COMPOSE_*"},
		{"podman", nil, "CONTAINER_HOST CONTAINER_CONNECTION CONTAINERS_* COMPOSE_*"},
	}
}

// isUsual reports whether a variable says what holds without it: git sets two for its hooks, calls of go run with this
// flag, and some people name the usual socket or file.
func isUsual(variable string) bool {
	name, value, _ := strings.Cut(variable, "=")
	if name == "KUBECONFIG" {
		home, err := os.UserHomeDir()
		return err == nil && filepath.Clean(value) == filepath.Join(home, ".kube", "config")
	}
	return slices.Contains([]string{"GIT_DIR=.git", "GIT_INDEX_FILE=.git/index", "GOFLAGS=-buildvcs=false",
		"DOCKER_CONTEXT=default", "DOCKER_HOST=unix:///var/run/docker.sock"}, variable)
}

// carryVariables returns the words of a tool's command line with the variables of the caller that mean an option which
// the line lacks, and the names of these variables. It refuses a line whose answer another variable would change, because
// the answer would be a wrong one without a warning. An empty variable counts as absent.
func carryVariables(words, environ []string) (line, carried []string, err error) {
	line = slices.Clone(words)
	known := knownVariables()
	i := slices.IndexFunc(known, func(v toolVariables) bool { return slices.Contains(strings.Fields(v.tools), words[0]) })
	if i < 0 {
		return line, nil, nil
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if value == "" || isUsual(variable) {
			continue
		}
		if slices.ContainsFunc(strings.Fields(known[i].refused), func(n string) bool { return matchesName(n, name) }) {
			return nil, nil, bailey.Invalid.Errorf(
				"unset "+name+", or pass its meaning as an argument, if bailey shim check accepts it",
				"%s is set, and a call gets no variables of its caller: the answer would not be that of %s with "+
					"it", name, words[0])
		}
	}
	for _, name := range slices.Backward(sortedNames(known[i].carried)) { // AWS_REGION before AWS_DEFAULT_REGION, as aws
		option, value := known[i].carried[name], lookUp(environ, name)
		if value == "" || hasOption(line, option) {
			continue
		}
		end := len(line)
		if at := slices.Index(line, "--"); at > 0 {
			end = at
		}
		line, carried = slices.Insert(line, end, option, value), append(carried, name)
		if strings.HasPrefix(value, "-") {
			return nil, nil, bailey.Invalid.Errorf("unset "+name, "%s begins with a hyphen", name)
		}
	}
	return line, carried, nil
}

func matchesName(known, name string) bool {
	if start, ok := strings.CutSuffix(known, "*"); ok {
		return strings.HasPrefix(name, start)
	}
	return name == known || strings.HasPrefix(known, "npm_") && strings.EqualFold(name, known)
}

func sortedNames(m map[string]string) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// lookUp returns the value of a variable: the last one, as for a program.
func lookUp(environ []string, name string) (value string) {
	for _, variable := range environ {
		if v, ok := strings.CutPrefix(variable, name+"="); ok {
			value = v
		}
	}
	return value
}

func hasOption(words []string, option string) bool {
	short := map[string]string{"--namespace": "-n"}[option]
	return slices.ContainsFunc(words, func(w string) bool {
		return w == option || strings.HasPrefix(w, option+"=") || short != "" && strings.HasPrefix(w, short)
	})
}
