// Package audit defines the format of Bailey's ledger and of the signatures about it, and verifies both. It is pure: an
// auditor needs only this package and a file. This comment is the specification. If a number must be the same in every
// implementation, it is given here.
//
// In this text || joins bytes, H is SHA-256, hex is lower-case, and base64 is RFC 4648's standard alphabet with
// padding; its unused bits must be zero. Integers in text are decimal without leading zeros.
//
// # Lines
//
// A ledger is one or more segments, 00000001.jsonl and up, read in order. Every file whose name is eight digits and
// .jsonl counts as a segment. A segment consists of lines of exactly this form:
//
//	{"hash":"HASH","entry":ENTRY}
//
// Each line ends with one newline (0x0a) and has at most [MaxLine] bytes, including the newline. HASH is 64 lower-case
// hexadecimal digits, ENTRY the raw bytes of the entry. No other byte may occur in a segment.
//
//	HASH = H( previous HASH as 32 bytes || raw bytes of ENTRY )
//
// The previous hash of the first entry is 32 zero bytes. The chain continues from one segment to the next. The hash
// covers bytes and never a parsed value, so no entry has two encodings that both verify.
//
// # Entries
//
// ENTRY consists of exactly these four members, in this order and without white space:
//
//	{"seq":N,"time":"T","kind":"K","data":D}
//
// The values are:
//
//   - N is 1 for the first entry and one more for each following entry: decimal, no sign, no leading zero.
//   - T is the writer's wall clock in UTC, RFC 3339, with at most nine fractional digits, no trailing zeros among
//     them, and "Z". A second of 60 is invalid. Clocks can be set back: N defines the order, never T. Verification
//     counts every step backward.
//   - K matches [a-z][a-z0-9._-]* and has at most 64 characters.
//   - D is a JSON object (RFC 8259) in UTF-8 without white space outside strings. No object in it may hold a key twice.
//     Keys are compared after their escapes are resolved.
//
// For example, the first line of a ledger that began on the host "castle" is
//
//	{"hash":"2b637349740fcb8ac0496e00b33251951a161abd10672915ee01a023e7add851","entry":{"seq":1,"time":"2026-11-03T09:00:01Z","kind":"genesis","data":{"format":1,"origin":"000102030405060708090a0b0c0d0e0f","host":"castle"}}}
//
// Its hash is H of 32 zero bytes and the 136 bytes from {"seq" to the last brace but one. The example of this package
// continues from there. testdata/vectors.json states, for many good and bad ledgers, the result that verification must
// give.
//
// # Kinds
//
// Entry 1, and no other, is of kind "genesis". It binds the ledger to the time and host of its beginning. Its data is
// exactly {"format":1,"origin":"O","host":"H"}. O is 128 random bits as 32 lower-case hexadecimal digits; H is 1 to 253
// characters from [A-Za-z0-9._-]. The time of the entry is the time at which the ledger began.
//
// The data of "intent" is a [bailey.Intent], that of "outcome" a [bailey.Outcome]. Both name a receipt in their member
// "receipt", 1 to 64 characters from [A-Za-z0-9._-]. The names of their own members, and of the members of a member
// "cage" that is an object, must be ASCII. No two names in one object may differ only in case, and no name may be
// "receipt", "cage" or "planDigest" in another case, because some readers would confuse the two. A receipt has one
// intent and after it at most one outcome. An intent without an outcome is open: the call is in progress, or a crash
// cut it off.
//
// If an outcome has a member "cage" with a member "planDigest", this digest must be 64 lower-case hexadecimal digits,
// and an earlier entry of kind "plan" must have the same digest. The data of "plan" is either
//
//	{"digest":"D","text":"T"}
//	{"digest":"D","redacted":true}
//
// D is the SHA-256 of T in UTF-8, and T is the plan of the cage that held the call. T must not be empty. If it contains
// U+FFFD, the character must be written as itself and not as an escape. If the text of a plan holds a secret, the text
// is withheld and the second form is used: the digest cannot be recomputed, and [Report.Plans] counts such plans.
//
// The kinds "segment" and "key" are described below. Every other kind is a note, and the writer alone defines its data.
//
// # Segments
//
// The first entry of every segment except a ledger's first is of kind "segment". No other entry is of that kind. It
// describes the entries before it, so that a writer that trusts its own disk can continue from the last segment alone
// ([ReadStart]). Its data is exactly
//
//	{"size":N,"head":"HASH","root":"ROOT","edge":["E1","E2",…],"open":["R1",…]}
//
// N is the number of entries before it, HASH the hash of the last of them, and ROOT in hex the root of the tree over
// them. E1, E2, … are in hex the roots of the full subtrees of this tree, the largest first: one for each 1 among the
// binary digits of N. R1, … are the open receipts in the order of their intents, at most [MaxCarried]. If more receipts
// are open, a writer does not begin a segment. A segment gets its name when its first line is complete and durable. A
// segment without an entry is damage.
//
// # A torn tail
//
// A crash may leave bytes after the last good line: an unfinished line, or blocks that never reached the disk, which
// read as zeros. If no well-formed line is among these bytes, and if they hold either no newline or at least 512 zeros,
// they are [Torn]. When the writer starts again, it cuts them off, keeps them aside and records this in a note of kind
// "repair" ([Bad.Tail]). In all other cases the bytes are [Frame]: a line that is not in the format, even if an
// unfinished line follows it. A file cannot show whether a crash was the cause.
//
// # The tree
//
// The entries are the leaves of the Merkle tree of RFC 6962, section 2.1, across all segments. A leaf is the whole line
// as it is in the file, from its first brace to its newline, both included. Entry N is leaf N-1.
//
//	leaf hash = H( 0x00 || line )     node hash = H( 0x01 || left || right )
//
// The root over no entries is H of the empty string. Proofs of inclusion and of consistency are those of RFC 6962,
// sections 2.1.1 and 2.1.2: [Checkpoint.Includes], [Checkpoint.Extends]. To grow, a tree needs only its edge
// ([Tree]).
//
// # Checkpoints
//
// A checkpoint (c2sp.org/tlog-checkpoint) is a note (c2sp.org/signed-note) whose text is three lines: the ledger's
// origin, the number of entries, and the root over them in base64. The origin is
//
//	bailey/HOST/ORIGIN
//
// with the host and origin of the genesis. A fourth line is refused. The log signs with Ed25519, signature type 0x01,
// under a key whose name is the origin. It must sign only a checkpoint that extends the one it signed last
// ([Checkpoint.Extends]): as many entries or more, and consistent.
//
// A witness (c2sp.org/tlog-cosignature, cosignature/v1) adds a signature of type 0x04 under its own name: eight bytes,
// big-endian, with the seconds since 1970, before the year 10000, and an Ed25519 signature over
//
//	"cosignature/v1\ntime " || seconds in decimal || "\n" || the note's text
//
// It states that at that time the witness knew of no larger tree of this origin and of no inconsistent one.
// Both kinds of key are written as verifier keys, NAME+ID+KEY. KEY is base64 of the type and the 32 bytes of the public
// key, and ID is in hex the first four bytes of H( NAME || "\n" || type || public key ).
//
// A note has one encoding here: at most [MaxNote] bytes, no signature line twice, and strict base64. If one signature
// by a known key is wrong, the whole note is invalid. Signatures by unknown keys are ignored. A key under two names is
// one witness.
//
// A witness is asked (c2sp.org/tlog-witness, add-checkpoint) with a [Request]: the line "old N", where N is the size
// that it saw last; the proof of consistency with that size, one hash in base64 per line; an empty line; the signed
// checkpoint.
//
// # Keys
//
// An entry of kind "key" states with which key the log signs from that entry on, that is, a tree of that many entries
// or more. Its data is exactly one of
//
//	{"key":"NEW","signature":"S"}
//	{"key":"NEW","old":"OLD","signature":"S"}
//
// The first entry of this kind must have the first form, all others the second. NEW and OLD are verifier keys of type
// 0x01 under the log's origin. OLD is the key that signed until then. No key may come twice. S is the base64 of an
// Ed25519 signature, by OLD or in the first form by NEW, over
//
//	"bailey.audit/key/v1\n" || OLD or "none" || "\n" || NEW || "\n"
//
// A verifier that trusts one of these keys trusts the keys after it. A checkpoint counts as signed if a trusted key has
// signed it. If the ledger names a key for the checkpoint's size, the trusted key must be that one. If the ledger has
// no entry of this kind, the auditor alone decides on the keys. Keep with a checkpoint the key that signed it: a ledger
// that was cut before a change of key does not lead to the next key.
//
// # Bodies
//
// A body, such as the output of a tool, stays outside if it is too long for a ledger or must be forgotten one day. The
// entry holds its length and
//
//	H( "bailey.audit/body/v1" || 0x00 || salt || length || body )
//
// in hex ([Commitment]). salt is 32 random bytes for this body alone, and length is eight bytes, big-endian. A party
// that has the body and the salt can check them. When both are gone, no party can check or guess the body. The entry
// stays unchanged, and the ledger verifies.
//
// # Portable receipts
//
// A receipt that leaves its ledger ([Receipt]) is, in this order: the line "bailey.audit/receipt/v1"; for each of its
// entries, in the order of their numbers, the line "entry N", the proof of its inclusion, one hash in hex per line,
// from the leaf's sibling up, and the entry's line as it is in the ledger; an empty line; and the signed checkpoint to
// which the proofs lead. It has at most [MaxReceipt] bytes. Its entries are one intent, the outcome of that receipt if
// it exists already, the plan that the outcome names and no other plan, and all entries of kind "key" up to the
// checkpoint's size. [VerifyReceipt] needs a key and no ledger. A receipt cannot show that no outcome or no later
// change of key exists.
//
// # Evidence bundles
//
// An evidence bundle ([Evidence]) is a selection of entries of one ledger, for example those of a session, sealed by the
// party that selected them. It is, in this order: the line "bailey.audit/evidence/v1"; the lines "about A", "key K" and
// "witness W", where A is a JSON object in the form of an entry's data, K the log's first key and W the key of the seal;
// for each entry the line "listed N LEAF" with its leaf hash in hex; an empty line; the entries with their proofs, as in
// a portable receipt; an empty line; the line "checkpoint B" and the B bytes of the signed checkpoint to which the
// proofs lead; the line "seal B" and the B bytes of a note by W, whose text is the line "bailey.audit/evidence-seal/v1"
// and the line with the SHA-256 in hex of all bytes before the line "seal B". Its second line is no number, so that the
// seal can never count as a checkpoint. A bundle has at most [MaxEvidence] bytes. Its entries are of the kinds intent,
// outcome, plan and key, each once, in the order of their numbers; an outcome's intent and plan are among them, and all
// changes of key up to the checkpoint's size. K and W are there for readers without another source for them.
//
// # Verification
//
// [Verify] confirms a ledger, or reports the first wrong entry and a [Reason]. [Check] also compares the ledger with
// checkpoints: the one that the ledger shows as its newest, and those that were kept elsewhere. It then distinguishes
//
//   - "replaced": the origin differs from that of the checkpoint or of a given key; the genesis was exchanged, or this
//     is another ledger;
//   - "key": the ledger does not announce a given key; if it announces no key at all, a given checkpoint that a given
//     key signed is enough instead;
//   - "truncated": fewer entries than were signed; they were cut off, or an older ledger was put back;
//   - "rollback": the ledger agrees with the checkpoint that it shows as its newest, but that names fewer entries than
//     one kept elsewhere, whether the ledger itself is too short or not;
//   - "fork": as many entries as were signed, but with another root;
//   - "signature" and "unwitnessed": no trusted key signed the checkpoint, or too few witnesses cosigned it.
//
// [Follow] checks only frames, numbers and hashes. It costs little more than hashing.
//
// # Limits of verification
//
// The chain proves the order, and that nothing inside was changed without rewriting everything after it. It does not
// prove honesty: a party that can write the file can rewrite it from any entry on, or cut its tail, and the rest
// verifies. A checkpoint kept out of the writer's reach shows this, up to its size. A party that also has the log's key
// can sign another ledger, or show two readers two different ledgers. A witness shows this, because it has cosigned one
// of them. [Report.LeavesOpen] states which entries of a ledger are covered by which of these. Times are the writer's
// clock. A call that never passed the gate is in no ledger.
package audit
