package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (k *kubectl) setupText() string {
	text := "# Kubernetes: the broker's own account may make tokens of this one account, and nothing else.\n" +
		"# Replace BROKER-NAMESPACE and BROKER-ACCOUNT by those of the token in " + k.secret + ".\n"
	spaces := append([]string{k.namespace}, k.namespaces...)
	slices.Sort(spaces)
	for i, space := range slices.Compact(spaces) {
		if i > 0 {
			text += "---\n"
		}
		text += fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: bailey-broker, namespace: %[1]s}
rules:
- {apiGroups: [""], resources: [serviceaccounts/token], resourceNames: [%[2]s], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bailey-broker, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: bailey-broker}
subjects:
- {kind: ServiceAccount, name: BROKER-ACCOUNT, namespace: BROKER-NAMESPACE}
`, space, k.account)
	}
	return text
}

func (v *vault) setupText() string {
	text := fmt.Sprintf(
		"# Vault or OpenBao: a policy for the broker's login.\npath %q {\n  capabilities = [\"read\"]\n}\n",
		v.path,
	)
	if v.token != "" {
		text += "\n# Only because the lease uses a fixed token: with appRole or kubernetes it is not needed.\npath \"sys/leases/revoke\" {\n  capabilities = [\"update\"]\n}\n"
	}
	return text
}

func (g *github) setupText() string {
	text := "# GitHub: create an App (Settings, Developer settings, GitHub Apps) without a webhook, with these repository permissions:\n"
	for _, name := range slices.Sorted(maps.Keys(g.permissions)) {
		text += fmt.Sprintf("#   %s: %s\n", name, g.permissions[name])
	}
	return text + fmt.Sprintf(
		"# Install it on these repositories only: %s.\n# Generate a private key and store it at %s, mode 0600.\n",
		strings.Join(g.repositories, ", "),
		g.key,
	)
}

func (a *aws) setupText() string {
	type object = map[string]any
	principal, action, condition := object{"AWS": "ARN-OF-THE-BROKERS-USER"}, "sts:AssumeRole", object{}
	if a.token != "" {
		principal, action = object{"Federated": "ARN-OF-THE-IDENTITY-PROVIDER"}, "sts:AssumeRoleWithWebIdentity"
	}
	if a.external != "" {
		condition["StringEquals"] = object{"sts:ExternalId": a.external}
	}
	trust := object{"Effect": "Allow", "Principal": principal, "Action": action}
	if len(condition) > 0 {
		trust["Condition"] = condition
	}
	own := object{"Effect": "Allow", "Action": action, "Resource": a.role}
	return "# AWS: the trust policy of " + a.role + "\n" + policyDocument(trust) +
		"# AWS: the only policy of the broker's user\n" + policyDocument(own)
}

// policyDocument returns a policy of AWS with one statement.
func policyDocument(statement map[string]any) string {
	text, err := json.MarshalIndent(map[string]any{"Version": "2012-10-17", "Statement": []any{statement}}, "", "  ")
	if err != nil { // strings and maps of strings
		panic(err)
	}
	return string(text) + "\n"
}

func (g *gcloud) setupText() string {
	return fmt.Sprintf(
		`# Google Cloud: the broker's own account may make tokens of this one account. Replace BROKER-ACCOUNT.
gcloud iam service-accounts add-iam-policy-binding %s \
  --member=serviceAccount:BROKER-ACCOUNT --role=roles/iam.serviceAccountTokenCreator
`,
		g.account,
	)
}

func (a *azure) setupText() string {
	return fmt.Sprintf(
		`# Azure: the application trusts the issuer of the token in %s. Replace ISSUER and SUBJECT by iss and sub of that token,
# and give the application the narrowest role on the narrowest scope that the calls need.
az ad app federated-credential create --id %s --parameters \
  '{"name":"bailey-broker","issuer":"ISSUER","subject":"SUBJECT","audiences":["api://AzureADTokenExchange"]}'
`,
		a.token,
		a.client,
	)
}

func (i *infisical) setupText() string {
	return fmt.Sprintf(
		"# Infisical: create an identity with universal auth, and in the project %s a role for it that may only\n# read %s in %s of the environment %s. Limit its client secret to the addresses of this machine.\n",
		i.project,
		i.name,
		i.path,
		i.environment,
	)
}

func (e *tokenExchange) setupText() string {
	text := fmt.Sprintf(
		"# The authorization server: allow the client to exchange tokens (grant %s)\n# for %s with the scopes %s, and nothing else.\n",
		grantExchange,
		e.audience+e.resource,
		e.want,
	)
	if e.revoke == "" {
		text += "# If the server has a revocation endpoint (RFC 7009), add its path as revoke: then a token ends with its call.\n"
	}
	return text
}
