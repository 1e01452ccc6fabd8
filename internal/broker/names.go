package broker

import (
	"slices"
	"strings"

	"bailey"
)

// Variables that make a loader, an interpreter, a shell or a tool run or read something else, for example BASH_ENV, and
// those that the cage sets itself. A credential must never arrive in one of them: otherwise the author of a manifest
// could choose the code that the tool executes. Sources: ld.so(8), bash(1), git(1), perlrun(1), python(1), node(1),
// go(1), npm-config(7), curl(1), openssl-env(7), the JVM's JAVA_TOOL_OPTIONS, and the configuration variables of
// kubectl, docker, terraform and the cloud tools.
var (
	barredPrefixes = []string{
		"BAILEY_", "BASH_FUNC_", "DYLD_", "GCONV_", "GIT_", "LC_", "LD_", "MALLOC_", "NPM_CONFIG_", "PERL",
		"PYTHON", "TF_CLI_",
	}
	barredNames = []string{
		"ALL_PROXY", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BASHOPTS", "BASH_ENV", "BROWSER", "CC",
		"CDPATH", "CLASSPATH", "CLOUDSDK_CONFIG", "CLOUDSDK_PYTHON", "CURL_CA_BUNDLE", "CURL_HOME", "CXX",
		"DOCKER_CONFIG", "DOCKER_HOST", "EDITOR", "ENV", "GLIBC_TUNABLES", "GOFLAGS", "HELM_PLUGINS", "HOME",
		"HOSTALIASES", "HTTPS_PROXY", "HTTP_PROXY", "IFS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "KUBECONFIG",
		"LANG", "LESSCLOSE", "LESSOPEN", "LOCALDOMAIN", "LOCPATH", "LOGNAME", "MAKEFLAGS", "NLSPATH",
		"NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NODE_PATH", "NO_PROXY", "OPENSSL_CONF", "OPENSSL_ENGINES",
		"OPENSSL_MODULES", "PAGER", "PATH", "PIP_CONFIG_FILE", "PROMPT_COMMAND", "PS4", "REQUESTS_CA_BUNDLE",
		"RES_OPTIONS", "RUBYLIB", "RUBYOPT", "RUBYSHELL", "RUSTC", "RUSTC_WRAPPER", "RUSTFLAGS", "SHELL",
		"SHELLOPTS", "SSH_ASKPASS", "SSH_AUTH_SOCK", "SSL_CERT_DIR", "SSL_CERT_FILE", "TERMINFO", "TMPDIR", "TZ",
		"TZDIR", "USER", "VISUAL", "XDG_CONFIG_HOME", "ZDOTDIR", "_JAVA_OPTIONS",
	}
)

// checkNames refuses variables that are misspelt, barred or wanted twice.
func checkNames(wants []bailey.Want) error {
	seen := make(map[string]bool, len(wants))
	for _, w := range wants {
		switch {
		case !validName(w.Env):
			return bailey.Invalid.Errorf("a name is letters, digits and underscores and does not begin with a digit",
				"credential %q wants the variable %q, which is no variable name", w.Name, w.Env)
		case isBarred(w.Env):
			return bailey.Denied.Errorf("name another variable in the manifest",
				"credential %q may not arrive in %s: that variable decides what a tool loads or runs", w.Name, w.Env)
		case seen[w.Env]:
			return bailey.Invalid.Errorf("give each credential a variable of its own in the manifest",
				"two credentials want the variable %s", w.Env)
		}
		seen[w.Env] = true
	}
	return nil
}

// validName reports whether name matches [A-Za-z_][A-Za-z0-9_]*.
func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// isBarred compares in upper case, because some tools read both http_proxy and HTTP_PROXY.
func isBarred(name string) bool {
	name = strings.ToUpper(name)
	if slices.Contains(barredNames, name) {
		return true
	}
	return slices.ContainsFunc(barredPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
