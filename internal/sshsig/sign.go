package sshsig

import (
	"encoding/base64"
	"strings"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// Sign returns the armoured signature of message for a namespace, as ssh-keygen -Y sign writes it. sign signs bytes
// with the key; for RSA it must use SHA-512. A signature that key does not verify is refused, whatever agent made it.
func Sign(message []byte, namespace string, key ssh.PublicKey, sign func(data []byte) (*ssh.Signature, error)) ([]byte,
	error) {
	e := envelope{Version: 1, Key: key.Marshal(), Namespace: namespace, Hash: "sha512"}
	copy(e.Magic[:], magic)
	data := e.signedData(message)
	signature, err := sign(data)
	if err != nil {
		return nil, err
	}
	if signature.Format == ssh.KeyAlgoRSA || key.Verify(data, signature) != nil {
		return nil, deniedError("the signature is not one of the key "+fingerprintOf(e.Key),
			"check which ssh agent is in use: ssh-add -l")
	}
	e.Signature = ssh.Marshal(signature)
	text := base64.StdEncoding.EncodeToString(ssh.Marshal(e))
	var out strings.Builder
	out.WriteString(begin)
	for len(text) > 0 {
		n := min(len(text), writtenLine)
		out.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	out.WriteString(end + "\n")
	if out.Len() > maxSignature {
		return nil, bailey.Invalid.New("the signature is longer than that of any key", "")
	}
	return []byte(out.String()), nil
}

// writtenLine is the length of a line of base64 as ssh-keygen writes it.
const writtenLine = 70
