// Package notify tells people that a question is open, so that they need not watch a terminal. It accepts no answers: a
// person answers the text that bailey approvals show prints.
//
// There are two ways, which settings turn on: the desktop of the user who runs the gateway, and a webhook. Neither
// delays a call. Each way has a queue of at most [MaxWaiting] messages and sends them one after the other. If the queue
// is full, the oldest message about a settled question is dropped and counted, or else the oldest message. A message
// that cannot be sent is logged and counted.
//
// # The webhook
//
// A message is a POST of JSON. Fields without a value are omitted; clients must ignore fields that they do not know.
//
//	{"type": "question.open",           or question.settled, or test
//	 "timestamp": "2026-11-22T12:00:00Z",
//	 "text": "…",                       one line for a person, in a form for chats, without text from an agent
//	 "id": "a-…", "capability": "git.push", "agent": "local",
//	 "inputs": "ref=\"main\" …",        redacted, shortened if long
//	 "reasons": ["…"], "impact": "mutating, externallyReversible",
//	 "wants": {"count": 1, "roles": ["sre"], "level": "signed-touch"},
//	 "expires": "…", "digest": "…",     digest of the text to answer
//	 "howTo": "bailey approvals show a-…; bailey approve a-…",
//	 "reason": "granted by ada"}        if settled
//
// It is signed according to Standard Webhooks 1.0 (https://www.standardwebhooks.com), with a symmetric key:
//
//	webhook-id: ID                      the same if a message is sent again
//	webhook-timestamp: SECONDS          since 1970, of this attempt
//	webhook-signature: v1,BASE64        HMAC-SHA-256 with the key over ID "." SECONDS "." the body as sent
//
// A receiver should verify the signature before it reads the body, refuse a timestamp that is minutes away, and accept
// an id once. A key is whsec_ followed by base64 of 24 to 64 bytes.
//
// The target must be https, or http on this machine. The address is checked when the connection is made: link-local
// addresses, cloud metadata services and multicast are refused, and with http all except loopback. Redirects and
// proxies are not used. An attempt may take five seconds. If the status is 5xx or 429, or no answer arrives, two more
// attempts follow. Of a response only the status code is read. Errors contain only scheme and host of the target,
// because the rest may be a secret.
package notify
