// Package notify tells people that a question is open, so that none depends on somebody who looks at a terminal. It says
// that there is something to answer, and takes no answer: what is answered is the text that bailey approvals show prints.
//
// There are two ways, which settings put on: the desktop of who runs the gateway, and a webhook. Nothing of it holds up a
// call. Each way has a line of at most [MaxWaiting] messages and sends them one after the other; where one more comes the
// oldest goes, and is counted. What could not be sent is logged and counted.
//
// # The webhook
//
// A message is a POST of JSON. Fields without a value are left out; clients ignore those that they do not know.
//
//	{"type": "question.open",           or question.settled, or test
//	 "timestamp": "2026-11-22T12:00:00Z",
//	 "text": "…",                       a line for a person, in the form that chats take; nothing in it comes from an agent
//	 "id": "a-…", "capability": "git.push", "agent": "local",
//	 "inputs": "ref=\"main\" …",        redacted, cut where they are long
//	 "reasons": ["…"], "impact": "mutating, externallyReversible",
//	 "wants": {"count": 1, "roles": ["sre"], "level": "signed-touch"},
//	 "expires": "…", "digest": "…",     of the text that is answered
//	 "howTo": "bailey approvals show a-…; bailey approve a-…",
//	 "reason": "granted by ada"}        of one that is settled
//
// It is signed as Standard Webhooks 1.0 has it (https://www.standardwebhooks.com), with a symmetric key:
//
//	webhook-id: ID                      the same whenever the same is sent again
//	webhook-timestamp: SECONDS          since 1970, of this try
//	webhook-signature: v1,BASE64        HMAC-SHA-256 by the key over ID "." SECONDS "." the body as it was sent
//
// A receiver verifies the signature before it reads the body, refuses a timestamp that is minutes away, and takes an id
// once. A key is written whsec_ and base64 of 24 to 64 bytes.
//
// The target is https, or http of this machine. Where a name leads is looked at when the connection is made: addresses of
// links, of clouds' metadata services and of groups are refused, and with http all but loopback. No redirect is followed
// and no proxy asked. A try has five seconds; answers of 5xx, 429 and none at all are tried twice more. Of an answer the
// code alone is read. Errors name scheme and host of the target: what stands behind them may be a secret.
package notify
