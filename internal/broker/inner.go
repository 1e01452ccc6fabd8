package broker

import (
	"regexp"
	"sync"
)

// maxInner bounds how many secrets a file is looked through for.
const maxInner = 64

// secretKey is a key that stands before a secret in files of credentials (kubeconfig, ~/.aws/credentials, headers in JSON), and that.
var secretKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:token|secret|password|passwd|authorization|key-data)[a-z_-]*["']?[ \t]*[:=][ \t]*["']?(?:(?:bearer|basic)[ \t]+)?([^\s"',}]{8,})`)
})

// inner are the secrets in a file that is lent: a tool which says one of them does not say the file, which is what redaction
// would look for.
func inner(text string) (list []string) {
	for _, m := range secretKey().FindAllStringSubmatch(text, maxInner) {
		if m[1] != text {
			list = append(list, m[1])
		}
	}
	return list
}
