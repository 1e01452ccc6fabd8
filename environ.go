package bailey

import (
	"slices"
	"strings"
)

// CageOwn reports whether every cage sets this variable itself.
func CageOwn(name string) bool {
	return name == "PATH" || name == "HOME" || name == "USER" || name == "TMPDIR"
}

// Loads reports whether a variable can influence the code that a program runs, the configuration that it uses, or the
// destination of its connections. See ld.so(8), bash(1), git(1), python(1), perlrun(1), ruby(1) and node(1).
func Loads(name string) bool {
	name = strings.ToUpper(name)
	for _, p := range loaderPrefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return slices.Contains(loaderNames, name)
}

var loaderPrefixes = []string{"LD_", "DYLD_", "GIT_", "PYTHON", "PERL", "RUBY", "NODE_", "NPM_", "BASH_", "GCONV_",
	"GLIBC_",
	"MALLOC_", "JAVA_", "_JAVA_", "JDK_", "MAVEN_", "GRADLE_", "GEM_", "BUNDLE_", "CARGO_", "RUST", "CGO_", "PIP_",
	"LUA_", "PHP",
	"DOTNET_", "CORECLR_", "COMPLUS_", "KUBE", "AWS_CONFIG", "AWS_SHARED_", "AWS_ENDPOINT", "CLOUDSDK_CONFIG",
	"CLOUDSDK_PYTHON",
	"AZURE_CONFIG", "DOCKER_", "HELM_", "TF_CLI_", "SSL_CERT_", "OPENSSL_", "SSH_", "BAILEY_", "XDG_", "LESS", "TERMINFO"}

var loaderNames = []string{"ENV", "IFS", "SHELL", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH",
	"GLOBIGNORE", "EDITOR", "VISUAL",
	"PAGER", "MANPAGER", "BROWSER", "CLASSPATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "RES_OPTIONS", "LOCALDOMAIN",
	"RESOLV_HOST_CONF",
	"TZDIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY", "DISPLAY", "DBUS_SESSION_BUS_ADDRESS",
	"CURL_CA_BUNDLE",
	"CURL_HOME", "REQUESTS_CA_BUNDLE", "GOFLAGS", "GOENV", "GOPROXY", "GOTOOLCHAIN", "GODEBUG", "GOROOT", "GOPATH",
	"MAKEFLAGS", "CC",
	"CXX", "TMP", "TEMP", "TERMCAP", "NETRC", "WGETRC"}
