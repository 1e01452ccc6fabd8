package sshsig

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"golang.org/x/crypto/ssh"

	"bailey"
)

const (
	magic = "SSHSIG"
	begin = "-----BEGIN SSH SIGNATURE-----\n"
	end   = "-----END SSH SIGNATURE-----"

	// maxSignature bounds the armored text in bytes. An RSA key of 16384 bits, the largest, produces less than 6 KiB.
	maxSignature = 16 << 10
	maxLine      = 76 // bytes of base64; ssh-keygen writes 70, other tools 76
)

// envelope holds the fields of the armored data, in their order.
type envelope struct {
	Magic     [len(magic)]byte
	Version   uint32
	Key       []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// parseEnvelope decodes an envelope and returns an error if the envelope is not in its one encoding.
func parseEnvelope(armored []byte) (*envelope, error) {
	raw, err := decodeArmor(armored)
	if err != nil {
		return nil, err
	}
	var e envelope
	if !bytes.HasPrefix(raw, []byte(magic)) {
		return nil, invalidError("the signature does not begin with " + magic)
	}
	if err := ssh.Unmarshal(raw, &e); err != nil {
		return nil, invalidError("the signature is cut short, or has bytes behind its end")
	}
	switch {
	case e.Version != 1:
		return nil, invalidError(fmt.Sprintf("the signature is of version %d, only 1 is known", e.Version))
	case !bytes.Equal(ssh.Marshal(e), raw):
		return nil, invalidError("the signature is not in its one encoding")
	case e.Namespace == "":
		return nil, invalidError("the signature names no namespace")
	case e.Reserved != "":
		return nil, invalidError("the signature's reserved field is not empty")
	case e.Hash != "sha256" && e.Hash != "sha512":
		return nil, invalidError(fmt.Sprintf("the signature is over hash %.40q, only sha256 and sha512 are taken",
			e.Hash))
	}
	return &e, nil
}

// decodeArmor removes the first and the last line and decodes the base64 between them. It checks the lines first because
// the decoder skips newlines.
func decodeArmor(armored []byte) ([]byte, error) {
	if len(armored) > maxSignature {
		return nil, invalidError(fmt.Sprintf("the signature has %d bytes, at most %d are read", len(armored),
			maxSignature))
	}
	body, ok := bytes.CutPrefix(armored, []byte(begin))
	if !ok {
		return nil, invalidError("the signature does not begin with the line " + begin[:len(begin)-1])
	}
	body, ok = bytes.CutSuffix(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"+end))
	if !ok {
		return nil, invalidError("the signature does not end with the line " + end)
	}
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		if len(line) == 0 || len(line) > maxLine || bytes.IndexByte(line, '\r') >= 0 {
			return nil, invalidError("a line of the signature is empty, too long, or ends in a carriage return")
		}
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(string(body))
	if err != nil {
		return nil, invalidError("the signature's lines are not base64")
	}
	return raw, nil
}

func invalidError(message string) error {
	return bailey.Invalid.New(message, "give the file that ssh-keygen -Y sign wrote, as it is")
}
