// Package canon writes the question put to a person as a canonical text, and parses such texts.
//
// A person answers a text, and the text holds everything that is asked. It is ASCII, and every line ends with a line
// feed. A line is a word and its fields, each preceded by one space. A field is a decimal number, a commitment of 64
// lower-case hexadecimal digits, a fixed word such as ttl, or a string in double quotes. In a string the bytes 0x20 to
// 0x7e stand for themselves, except " and \, which are preceded by a \. Any other code point of valid UTF-8 is written
// as \u{ followed by its number in lower-case hexadecimal and }. A byte that is not part of valid UTF-8 is written as
// \x{ followed by two digits and }. Therefore a line feed in a value cannot end a line, and no two questions have the
// same text. The lines, in this order:
//
//	bailey approval 1
//	question "ID"
//	receipt "ID"
//	agent "NAME"
//	person "NAME"
//	organisation "NAME"
//	roles N, then N lines: role "NAME"
//	session "ID"
//	capability "ID"
//	manifest "DIGEST"
//	impact "SIDE EFFECT, REVERSIBILITY", and if no cage would hold the call
//	  "runs without a cage, SIDE EFFECT, REVERSIBILITY"
//	inputs N, then N lines in order of name: input "NAME" COMMITMENT "VALUE IN JSON"
//	resource "KIND" "NAME"
//	cwd COMMITMENT "PATH"
//	contents "none", "bound" or "not bound"
//	files N, then N lines in order of input: file "INPUT" BYTES COMMITMENT
//	preview N, then N lines: previewed COMMITMENT "ARGUMENT", and if N is not 0 a line: output COMMITMENT "TEXT"
//	binary COMMITMENT "PATH" "DIGEST"
//	cage "KIND" COMMITMENT "DIGEST OF ITS PLAN"
//	environment N, then N lines: name "NAME"
//	argv N, then N lines: argument COMMITMENT "TEXT"
//	leases N, then N lines: lease "NAME" "ENV" "ADAPTER" "SCOPE" ttl SECONDS, followed, if the tool has a placeholder
//	  for the credential, by: inject N "PLACE" … headers N "NAME" … query N "NAME" …
//	egress N, then N lines: reaches "PLACE AND FLAGS"; this part is absent if the tool reaches nothing
//	rules N, then N lines: rule "ID" "DIGEST" role "ROLE" level "LEVEL" count COUNT ttl SECONDS reason "REASON"
//	nonce "32 HEXADECIMAL DIGITS"
//	asked "TIME"
//	expires "TIME"
//	until "TIME"
//	end
//
// Digests are SHA-256 in hexadecimal. Times are RFC 3339 in UTC with as many fractional digits as they need. A count of
// 0 means that the rule states no count. The session is "" if no caller can come back to the call. A question can be
// answered until the time in expires; a granted call must run by the time in until, or it never runs. contents
// describes the files and directories that the call names. They are bound if they are among the files, which were
// copied when the question was asked, or if the preview shows the relevant parts of them. They are not bound if they
// may change before the call runs. The text beside a commitment is redacted, and the output of a preview may be cut.
// The commitment is to the value itself (for a file, to the SHA-256 of its content in hexadecimal), so the text can be
// stored and shown, and later be compared with the call that ran:
//
//	salt       = HMAC-SHA-256(key, nonce as it stands | n)
//	commitment = SHA-256("bailey approval 1" | 0x00 | salt | value)
//
// n is eight bytes, big-endian, and counts the commitments of a text from 0 in their order. The key belongs to the home
// and is in no ledger. With one salt a party can check one value and cannot guess any other ([Salt], [Commit]).
//
// The digest of a question is the SHA-256 of its text. The signature is over the text itself, as SSHSIG in the
// namespace approval@bailey: ssh-keygen -Y verify -n approval@bailey verifies an answer from the ledger.
//
// # Standing grants
//
// A grant for more than one call is given to a text of its own, in the same form:
//
//	bailey grant 1
//	grant "ID"
//	capability "ID"
//	agent "NAME"
//	person "NAME"
//	organisation "NAME"
//	rules N, then N lines as above
//	nonce "32 HEXADECIMAL DIGITS"
//	given "TIME"
//	until "TIME"
//	end
package canon
