// Package canon writes what a person is asked as a text of which there is one form, and reads it.
//
// An answer is given to a text, which holds all that is asked. It is ASCII, in lines that end with a line feed. A line
// is a word and its fields, one space before each. A field is a number in decimal, a commitment of 64 lower-case
// hexadecimal digits, or a string in double quotes. In a string the bytes 0x20 to 0x7e stand for themselves but for " and
// \, which have a \ before them; any other code point of valid UTF-8 is \u{ and its number in lower-case hexadecimal
// and }, and a byte that is not part of one \x{ and two digits and }. So a line feed in what was asked ends no line, and
// no two questions have the same text. The lines, in this order:
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
//	impact "SIDE EFFECT, REVERSIBILITY", and of a call that no cage would hold "runs without a cage, SIDE EFFECT, REVERSIBILITY"
//	inputs N, then N lines in order of name: input "NAME" COMMITMENT "VALUE IN JSON"
//	resource "KIND" "NAME"
//	cwd COMMITMENT "PATH"
//	contents "none", "bound" or "not bound"
//	files N, then N lines in order of input: file "INPUT" BYTES COMMITMENT
//	preview N, then N lines: previewed COMMITMENT "ARGUMENT", and where N is not 0 a line: output COMMITMENT "TEXT"
//	binary COMMITMENT "PATH" "DIGEST"
//	cage "KIND" COMMITMENT "DIGEST OF ITS PLAN"
//	environment N, then N lines: name "NAME"
//	argv N, then N lines: argument COMMITMENT "TEXT"
//	leases N, then N lines: lease "NAME" "ENV" "ADAPTER" "SCOPE" ttl SECONDS, and of one that the tool has a
//	  placeholder of, behind that: inject N "PLACE" … headers N "NAME" … query N "NAME" …
//	egress N, then N lines: reaches "PLACE AND FLAGS"; there is no such line where the tool reaches nothing
//	rules N, then N lines: rule "ID" "DIGEST" role "ROLE" level "LEVEL" count COUNT ttl SECONDS reason "REASON"
//	nonce "32 HEXADECIMAL DIGITS"
//	asked "TIME"
//	expires "TIME"
//	until "TIME"
//	end
//
// Digests are SHA-256 in hexadecimal, times those of RFC 3339 in UTC with as many digits of a second as there are, and a
// count of 0 in a rule is that of a rule which says none. A call that nobody can come back to has the session "". A
// question can be answered until it expires, and what is granted runs by the time after until, or never. Contents
// are those of files and directories that the call names: bound where they are among the files, which were copied when
// they were asked about, or where the preview shows what matters of them; not bound where they may change before it runs.
// What stands behind a commitment is redacted, and the output of a preview may be cut. The commitment is to the value
// itself (of a file to the SHA-256 of its content, in hexadecimal), so that the text can be stored and shown, and later be
// held against what ran:
//
//	salt       = HMAC-SHA-256(key, nonce as it stands | n)
//	commitment = SHA-256("bailey approval 1" | 0x00 | salt | value)
//
// n is eight bytes, big-endian, and counts the commitments of a text from 0 in their order. The key is the home's and in
// no ledger. Whoever is given one salt can check one value, and guess at no other ([Salt], [Commit]).
//
// The digest of a question is SHA-256 of its text. What is signed is the text itself, as SSHSIG in the namespace
// approval@bailey: ssh-keygen -Y verify -n approval@bailey confirms an answer of the ledger.
//
// # A grant that stands
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
