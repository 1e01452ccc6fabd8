package policyfiles

// SignatureNamespace prevents the use of a policy's signature for any other purpose.
const SignatureNamespace = "policy@bailey"

// SignedText returns the text that is signed for a policy: the digest of its files.
func SignedText(digest string) []byte { return []byte("bailey policy " + digest + "\n") }
