package server

import (
	"strings"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policyfiles"
	"bailey/internal/settings"
	"bailey/internal/sshsig"
)

// signer returns the signer of a policy. It returns nil if no signature is given and none is required.
func signer(digest, signature string, trusted []string) (*apitype.PolicySigner, error) {
	if signature == "" && len(trusted) == 0 {
		return nil, nil
	}
	if signature == "" {
		return nil, &bailey.Error{Kind: bailey.Denied, Message: settings.FileName + " names policySigners, and this policy is not signed",
			Hint: "bailey policy text DIR | ssh-keygen -Y sign -n " + policyfiles.SignatureNamespace + " -f KEY > FILE, then bailey policy apply DIR --signature FILE"}
	}
	if len(trusted) == 0 {
		return nil, &bailey.Error{Kind: bailey.Denied, Message: "nobody is trusted to sign a policy", Hint: "name keys under policySigners in " + settings.FileName + ", then bailey init --apply; or apply without --signature"}
	}
	keys, err := sshsig.ParseKeys([]byte(strings.Join(trusted, "\n")))
	if err != nil {
		return nil, err
	}
	by, err := sshsig.Verify(policyfiles.SignedText(digest), []byte(signature), policyfiles.SignatureNamespace, keys)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.KindOf(err), Message: "the policy's signature", Err: err, Hint: bailey.HintOf(err)}
	}
	return &apitype.PolicySigner{Name: by.Name, Key: by.Key, Touch: by.Touch}, nil
}
