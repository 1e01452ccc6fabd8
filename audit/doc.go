// Package audit is the format of Bailey's ledger, of what is signed about it, and their verification. It is
// pure: an auditor needs this package and a file. This comment is the specification; where a number has to be
// the same everywhere it stands here.
//
// In what follows || joins bytes, H is SHA-256, hex is lower-case, and base64 is RFC 4648's standard alphabet with
// padding and without bits that count for nothing. Integers in text are decimal without leading zero.
//
// # Lines
//
// A ledger is one or more segments, 00000001.jsonl and up, read in order; every file of eight digits and .jsonl counts as one. A segment is lines of exactly
//
//	{"hash":"HASH","entry":ENTRY}
//
// each ended by one newline (0x0a) and at most [MaxLine] bytes long with it. HASH is 64 lower-case
// hexadecimal digits, ENTRY the entry's raw bytes. No byte may stand anywhere else.
//
//	HASH = H( previous HASH as 32 bytes || raw bytes of ENTRY )
//
// The previous hash of the first entry is 32 zero bytes. The chain runs on from one segment to the next.
// The hash covers bytes and never a parsed value: no entry has two encodings that both verify.
//
// # Entries
//
// ENTRY is exactly these four members, in this order and without white space:
//
//		{"seq":N,"time":"T","kind":"K","data":D}
//
//	  - N is 1 for the first entry and one more for each that follows: decimal, no sign, no leading zero.
//	  - T is the writer's wall clock in UTC, RFC 3339 with as many fractional digits as are not zero, at most
//	    nine, and "Z"; there is no second 60. Clocks are set back: order is N, never T. Verification counts every step backward.
//	  - K matches [a-z][a-z0-9._-]* and has at most 64 characters.
//	  - D is a JSON object (RFC 8259) in UTF-8 without white space outside strings, in which no object holds
//	    a key twice, keys being compared after their escapes are resolved.
//
// The first line of a ledger that began on the host "castle" is
//
//	{"hash":"2b637349740fcb8ac0496e00b33251951a161abd10672915ee01a023e7add851","entry":{"seq":1,"time":"2026-11-03T09:00:01Z","kind":"genesis","data":{"format":1,"origin":"000102030405060708090a0b0c0d0e0f","host":"castle"}}}
//
// and the hash in it that of 32 zero bytes and the 136 bytes from {"seq" to the last brace but one. The
// package's example goes on from there; testdata/vectors.json says of many ledgers, good and bad, what
// verification has to find.
//
// # Kinds
//
// Entry 1, and no other, is of kind "genesis": it binds the ledger to where it began. Its data is exactly
// {"format":1,"origin":"O","host":"H"}, O being 128 random bits as 32 lower-case hexadecimal digits and H
// 1 to 253 characters out of [A-Za-z0-9._-]; its time is when the ledger began.
//
// The data of "intent" and "outcome" is a [bailey.Intent] and a [bailey.Outcome]. Both name a receipt in
// their member "receipt", 1 to 64 characters out of [A-Za-z0-9._-]. The names of their own members, and of those of a
// member "cage" that is an object, are ASCII; no two of one object differ in case alone, and none is "receipt", "cage" or
// "planDigest" in another case, since readers exist that would take one for the other. A receipt has one intent and after it at most one outcome. An intent without outcome is open: a call in progress, or one that a crash cut off.
//
// Where an outcome has a member "cage" with a member "planDigest", that is 64 lower-case hexadecimal digits,
// and an entry of kind "plan" before it has the same. The data of "plan" is either
//
//	{"digest":"D","text":"T"}
//	{"digest":"D","redacted":true}
//
// D being the SHA-256 of T in UTF-8: the plan of the cage that held the call. T is not empty, and where
// it holds U+FFFD that stands there as it is and not as an escape. A plan whose text holds a secret is
// withheld in the second form: its digest cannot be recomputed, and [Report.Plans] says of how many.
//
// "segment" and "key" are described below. Every other kind is a note, and its data is the writer's affair.
//
// # Segments
//
// The first entry of every segment but a ledger's first is of kind "segment", and no other is. It says what
// stands before it, so that a writer that trusts its own disk goes on from the last segment alone ([ReadStart]).
// Its data is exactly
//
//	{"size":N,"head":"HASH","root":"ROOT","edge":["E1","E2",…],"open":["R1",…]}
//
// N being the number of entries before it, HASH the last one's, ROOT in hex the root of the tree over them,
// E1, E2, … in hex the roots of the full subtrees that this tree consists of, the largest first: one for each one
// among the binary digits of N. R1, … are the receipts that are open, in the order of their intents, at most
// [MaxCarried]: with more a writer does not begin a segment. A segment is given its name when its first line is whole
// and durable; one without an entry is damage.
//
// # A torn tail
//
// A crash may leave bytes after the last good line: an unfinished line, or blocks that never came to the disk, which are
// zeros. When no well-formed line stands among them, and no newline or else 512 zeros and more, they are [Torn]: the writer cuts
// them at its next start, keeps them aside and records that in a note of kind "repair" ([Bad.Tail]). Other bytes that end with a
// newline are a line, and a [Frame] that is none. Whether it was a crash, no file can say.
//
// # The tree
//
// The entries are the leaves of the Merkle tree of RFC 6962, section 2.1, across all segments. A leaf is
// the whole line as it stands in the file, from its first brace to its newline, both included; entry N is leaf
// N-1.
//
//	leaf hash = H( 0x00 || line )     node hash = H( 0x01 || left || right )
//
// The root over no entry is H of nothing. Proofs of inclusion and of consistency are those of RFC 6962,
// sections 2.1.1 and 2.1.2: [Prover], [Checkpoint.Includes], [Checkpoint.Extends]. To grow, a tree needs its
// edge alone ([Tree]).
//
// # Checkpoints
//
// A checkpoint (c2sp.org/tlog-checkpoint) is a note (c2sp.org/signed-note) whose text is three lines: the
// ledger's origin, the number of entries, the root over them in base64. The origin is
//
//	bailey/HOST/ORIGIN
//
// of the genesis. A fourth line is refused. The log signs with Ed25519, signature type 0x01, under its origin as
// the key's name. It signs nothing that does not extend what it signed last ([Checkpoint.Sign]): as many entries or
// more, and consistent.
//
// A witness (c2sp.org/tlog-cosignature, cosignature/v1) adds a signature of type 0x04 under a name of its own:
// eight bytes, big-endian, of seconds since 1970, before the year 10000, and an Ed25519 signature over
//
//	"cosignature/v1\ntime " || seconds in decimal || "\n" || the note's text
//
// It says: at that time I knew of no larger tree of this origin, and of none that is inconsistent ([Cosign]).
// Both kinds of key are written as verifier keys, NAME+ID+KEY, KEY being base64 of the type and the 32 bytes
// of the public key, and ID in hex the first four bytes of H( NAME || "\n" || type || public key ).
//
// A note has one encoding here: at most [MaxNote] bytes, no signature line twice, no loose base64. One wrong
// signature by a key that is known makes it none; those by keys that are not known count for nothing. A key under
// two names is one witness.
//
// A witness is asked (c2sp.org/tlog-witness, add-checkpoint) with a [Request]: the line "old N", N being the size that it
// saw last; the proof of consistency with that, a hash in base64 on each line; an empty line; the signed checkpoint.
//
// # Keys
//
// An entry of kind "key" says with which key the log signs from that entry on: a tree of that many entries or
// more. Its data is exactly one of
//
//	{"key":"NEW","signature":"S"}
//	{"key":"NEW","old":"OLD","signature":"S"}
//
// the first form once, before all of the second. NEW and OLD are verifier keys of type 0x01 under the log's origin,
// OLD is the one that signed till then, no key comes twice, and S is the base64 of an Ed25519 signature, by OLD or
// in the first form by NEW, over
//
//	"bailey.audit/key/v1\n" || OLD or "none" || "\n" || NEW || "\n"
//
// Who trusts one of these keys trusts those after it. A checkpoint is held to be signed when a trusted key has
// signed it, and when that is the one that the ledger names for its size, if it names one by then. Without an
// entry of this kind the keys are the auditor's affair alone. Keep with a checkpoint the key that signed it: a ledger
// that was cut before a change of key does not lead to the next.
//
// # Bodies
//
// What is too long for a ledger, or must be forgotten one day, stays outside. In an entry stands how long it is, and
//
//	H( "bailey.audit/body/v1" || 0x00 || salt || length || body )
//
// in hex ([Commitment]), salt being 32 random bytes of this body alone and length eight bytes, big-endian. Whoever
// is given body and salt can check them. When both are gone nobody can, nor guess the body; the entry stays
// what it was, and the ledger verifies.
//
// # Portable receipts
//
// A receipt that leaves its ledger ([Receipt]) is, in this order: the line "bailey.audit/receipt/v1"; for
// each of its entries, in the order of their numbers, the line "entry N", the proof of its inclusion, a hash in hex on
// each line, from the leaf's sibling up, and the entry's line as it stands in the ledger; an empty line; and the
// signed checkpoint to which the proofs lead. It is at most [MaxReceipt] bytes long. Its entries are one intent,
// that receipt's outcome once there is one, the plan that the outcome names and no other, and all entries of kind "key" up
// to the checkpoint's size. [VerifyReceipt] needs a key and no ledger. That there is no outcome, or no later change of
// key, it cannot show.
//
// # Verification
//
// [Verify] says yes, or which entry is wrong first and why, a [Reason]. [Check] also holds the ledger against
// checkpoints: the one that it shows itself as its newest, and one that was kept elsewhere. Then it tells apart
//
//   - "replaced": another origin than the checkpoint's or a given key's; the genesis was exchanged, or this is another ledger;
//   - "key": a given key that is none of those that the ledger announces; if it announces none, one that signed no checkpoint that was given;
//   - "truncated": fewer entries than were signed, cut off or put back;
//   - "rollback": the same, and the ledger agrees with the checkpoint that it shows as its newest;
//   - "fork": as many entries, and another root than the one signed;
//   - "signature" and "unwitnessed": the checkpoint is not signed by a trusted key, or cosigned by too few.
//
// [Follow] checks frames, numbers and hashes alone, at little more than the price of hashing.
//
// # What this does not prove
//
// The chain proves order and that nothing inside was changed without rewriting everything after it. It
// does not prove honesty: whoever can write the file can rewrite it from any entry on, or cut its tail, and
// what is left verifies. A checkpoint kept where the writer cannot reach shows that, up to its size; who also has
// the log's key can sign another ledger, or show two readers two of them, and then a witness shows it:
// it has cosigned one. [Report.LeavesOpen] says of a ledger which entries are covered by which. Times are the
// writer's clock. And what never passed the gate is in no ledger.
package audit
