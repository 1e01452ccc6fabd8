package broker

import (
	"regexp"
	"sync"
)

// maxInner limits the number of secrets that are searched for in a file.
const maxInner = 64

// secretKey matches a key that precedes a secret in credential files (for example kubeconfig, ~/.aws/credentials,
// headers in JSON), and the secret.
var secretKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:token|secret|password|passwd|authorization|key-data)[a-z_-]*["']?[ \t]*[:=][ \t]*["']?(?:(?:bearer|basic)[ \t]+)?([^\s"',}]{8,})`)
})

// embeddedSecrets returns the secrets in a lent file. A tool can print one of them without printing the whole file, and redaction
// would otherwise look for the whole file only.
func embeddedSecrets(text string) (list []string) {
	for _, m := range secretKey().FindAllStringSubmatch(text, maxInner) {
		if m[1] != text {
			list = append(list, m[1])
		}
	}
	return list
}
