package broker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bailey"
)

// narrower is implemented by adapters whose issuer can give less than the table allows.
type narrower interface {
	// narrowTo returns the adapter of one call, which has no right that the receiver lacks, and its rights in words.
	// rights is "" if the limits change none; the adapter may still check more of the issuer's answer. It returns an
	// error if a limit lies outside of the table.
	narrowTo(limits map[string]string) (a Adapter, rights string, err error)
}

// limitKinds are the kinds that a call can name. A kind that an adapter does not know leaves its rights as they are,
// and
// the terms of the loan say nothing about it.
func limitKinds() []string {
	return []string{"access", "bucket", "namespace", "region", "repository", "service"}
}

// maxLimits is the length of the limits of one want in bytes.
const maxLimits = 1024

// parseLimits parses the limits of a want strictly, in their only encoding.
func parseLimits(text string) (map[string]string, error) {
	limits, last := map[string]string{}, ""
	if text == "" {
		return limits, nil
	}
	for part := range strings.SplitSeq(text, " ") {
		kind, value, ok := strings.Cut(part, "=")
		if !ok || kind <= last || !slices.Contains(limitKinds(), kind) || !isLimit(value) {
			return nil, bailey.Invalid.Errorf("use a gateway and a broker of one version",
				"the limits of a credential are malformed: %.60q", text)
		}
		limits[kind], last = value, kind
	}
	return limits, nil
}

func isLimit(s string) bool {
	return s != "" && len(s) <= maxWord && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-/,", r)
	})
}

// narrowEntry returns the entry of one call. Its scope, which an approval binds, ends with the rights of that call.
func (e Entry) narrowEntry(w want) (Entry, error) {
	limits, err := parseLimits(w.Limits)
	if err != nil {
		return e, err
	}
	n, ok := e.mint.(narrower)
	if !ok || len(limits) == 0 {
		return e, nil
	}
	a, rights, err := n.narrowTo(limits)
	if err != nil {
		return e, bailey.KindOf(err).Wrapf(err, bailey.HintOf(err), "credential %q", w.Name)
	}
	if e.mint = a; rights != "" {
		e.Scope = strings.TrimPrefix(e.Scope+"; for this call: "+rights, "; ")
	}
	return e, nil
}

// narrowTo limits a token to the repositories that the call names, and to reading if the call only reads. GitHub has no
// token without a repository; a call for repositories that are not in the table, which may be public, gets one that can
// read the metadata of one repository.
func (g *github) narrowTo(limits map[string]string) (Adapter, string, error) {
	less := *g
	if limits["access"] == "read" {
		less.permissions = map[string]string{}
		for name := range g.permissions {
			if name != "workflows" && name != "profile" { // which have the level write alone
				less.permissions[name] = "read"
			}
		}
		if len(less.permissions) == 0 { // without any, GitHub would give all of the App's
			less.permissions["metadata"] = "read"
		}
	}
	if asked := limits["repository"]; asked != "" {
		less.repositories, less.wanted = nil, nil
		for name := range strings.SplitSeq(asked, ",") {
			if known := g.findRepository(name); known != "" {
				less.repositories, less.wanted = append(less.repositories, known), append(less.wanted, name)
			}
		}
		if less.repositories == nil {
			less.repositories, less.permissions = g.repositories[:1], map[string]string{"metadata": "read"}
		}
	}
	rights := less.describeRights()
	if rights == g.describeRights() { // the owner of what GitHub issues counts in any case
		rights = ""
	}
	return &less, rights, nil
}

// findRepository returns the table's spelling of OWNER/NAME, or "" if the table does not have it.
func (g *github) findRepository(asked string) string {
	owner, name, _ := strings.Cut(asked, "/")
	if g.owner != "" && !strings.EqualFold(owner, g.owner) {
		return ""
	}
	for _, known := range g.repositories {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return ""
}

func (g *github) describeRights() string {
	var rights []string
	for _, name := range slices.Sorted(maps.Keys(g.permissions)) {
		rights = append(rights, name+":"+g.permissions[name])
	}
	return strings.Join(rights, " ") + " in " + strings.Join(g.repositories, ", ")
}

// narrowTo uses the account of the same name in the namespace of the call. The table lists the namespaces that have
// one.
func (k *kubectl) narrowTo(limits map[string]string) (Adapter, string, error) {
	space := limits["namespace"]
	if space == "" || len(k.namespaces) == 0 || space == k.namespace {
		return k, "", nil
	}
	if !slices.Contains(k.namespaces, space) {
		return nil, "", deniedError("name it under namespaces in "+TableName+", then bailey-broker apply",
			"the namespace %.60s is not in the broker's table", space)
	}
	less := *k
	less.setNamespace(space)
	return &less, "namespace " + space, nil
}

// awsPrefixes returns the prefixes that the actions of a service have in policies, as in
// https://docs.aws.amazon.com/service-authorization/latest/reference/. The first is that of the service, and the
// others are
// of services that the command asks by itself. A service that is not listed has its own name, if the command and
// policies
// agree on that, or is not known.
func awsPrefixes(service string) []string {
	prefixes := map[string]string{
		"acm": "", "acm-pca": "", "amplify": "", "apprunner": "", "appsync": "", "athena": "", "autoscaling": "",
		"backup": "", "batch": "", "codeartifact": "sts", "codebuild": "", "codecommit": "", "codepipeline": "",
		"dax": "", "dlm": "iam", "dynamodb": "", "ec2": "", "ecr": "", "ecs": "", "eks": "sts", "elasticache": "",
		"elasticbeanstalk": "", "events": "", "firehose": "", "fis": "", "fsx": "", "glue": "", "guardduty": "", "kafka": "",
		"kendra": "", "kinesis": "", "kms": "", "lambda": "", "lightsail": "", "logs": "", "memorydb": "", "pipes": "",
		"polly": "", "rds": "", "redshift": "", "route53": "", "route53resolver": "", "s3": "", "s3api": "s3", "sagemaker": "",
		"scheduler": "", "secretsmanager": "", "securityhub": "", "sns": "", "sqs": "", "ssm": "", "sts": "",
		"cloudformation": "s3", "cloudwatch": "", "efs": "elasticfilesystem", "elb": "elasticloadbalancing",
		"elbv2": "elasticloadbalancing", "es": "", "opensearch": "es", "ses": "ses", "sesv2": "ses", "stepfunctions": "states",
		"application-autoscaling": "", "cognito-idp": "", "iam": "", "organizations": "", "cloudfront": "",
	}
	more, ok := prefixes[service]
	if !ok {
		return nil
	}
	words := strings.Fields(more)
	switch service {
	case "efs", "elb", "elbv2", "opensearch", "sesv2", "stepfunctions", "s3api":
		return words
	}
	return append([]string{service}, words...)
}

// awsRegional reports whether the requests of a service go to the region that the command line names. Those of S3 go to
// that of the bucket.
func awsRegional(service string) bool {
	switch service {
	case "s3", "s3api", "iam", "sts", "organizations", "cloudfront", "route53":
		return false
	}
	return awsPrefixes(service) != nil
}

// narrowTo limits the session to the service, the region and the buckets that the command line names, by statements
// that deny the rest: such a statement can only take away.
func (a *aws) narrowTo(limits map[string]string) (Adapter, string, error) {
	prefixes := awsPrefixes(limits["service"])
	if prefixes == nil {
		return a, "", nil
	}
	less, rights := *a, []string{"service " + limits["service"]}
	less.denied = []any{denyOthers(prefixes)}
	if region := limits["region"]; region != "" && awsRegional(limits["service"]) {
		rights = append(rights, "region "+region)
		less.denied = append(less.denied, map[string]any{"Effect": "Deny", "Action": prefixes[0] + ":*",
			"Resource":  "*",
			"Condition": map[string]any{"StringNotEquals": map[string]string{"aws:RequestedRegion": region}}})
	}
	if buckets := limits["bucket"]; buckets != "" && prefixes[0] == "s3" {
		var resources []string
		partition := strings.Split(a.role, ":")[1]
		for name := range strings.SplitSeq(buckets, ",") {
			arn := "arn:" + partition + ":s3:::" + name
			resources = append(resources, arn, arn+"/*")
		}
		rights = append(rights, "bucket "+strings.ReplaceAll(buckets, ",", ", "))
		less.denied = append(less.denied, map[string]any{"Effect": "Deny", "Action": "s3:*", "NotResource": resources})
	}
	return &less, strings.Join(rights, ", "), nil
}

// denyOthers denies the actions of all other services, except for those that a service takes on the caller's behalf,
// for example KMS for an encrypted bucket. iam:PassRole is a right to name a role in a request to the service.
func denyOthers(prefixes []string) map[string]any {
	var actions []string
	for _, prefix := range prefixes {
		actions = append(actions, prefix+":*")
	}
	actions = append(actions, "iam:PassRole")
	return map[string]any{"Effect": "Deny", "NotAction": actions, "Resource": "*",
		"Condition": map[string]any{"BoolIfExists": map[string]string{"aws:ViaAWSService": "false"}}}
}

// policyText returns the session policy with the limits of the call, or "" if there is none.
func (a *aws) policyText() (string, error) {
	text := []byte(nil)
	if a.policy != "" {
		var err error
		if text, err = readTrusted(a.policy, maxPolicy); err != nil {
			return "", err
		}
		if !json.Valid(text) {
			return "", unavailableError(nil, "write the session policy as JSON", "%s is not JSON", a.policy)
		}
	}
	if a.denied == nil {
		return string(text), nil
	}
	whole, err := joinPolicy(text, a.denied)
	if err != nil {
		return "", unavailableError(nil, "write it as {\"Version\": …, \"Statement\": […]}",
			"%s is not a policy", a.policy)
	}
	if len(whole) > maxPolicy {
		return "", unavailableError(nil, "shorten the session policy",
			"%s with the limits of the call is longer than %d characters", cmp.Or(a.policy,
				"the session policy"), maxPolicy)
	}
	return whole, nil
}

// joinPolicy adds statements to a policy. Without a policy, the rest stays allowed: the session has at most the rights
// of
// the role.
func joinPolicy(text []byte, more []any) (string, error) {
	policy := map[string]json.RawMessage{}
	statements := []any{map[string]string{"Effect": "Allow", "Action": "*", "Resource": "*"}}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &policy); err != nil {
			return "", err
		}
		var list []json.RawMessage
		if err := json.Unmarshal(policy["Statement"], &list); err != nil { // one statement needs no list
			list = []json.RawMessage{policy["Statement"]}
		}
		statements = nil
		for _, s := range list {
			if len(s) == 0 || s[0] != '{' {
				return "", fmt.Errorf("no statement")
			}
			statements = append(statements, s)
		}
	} else {
		policy["Version"] = json.RawMessage(`"2012-10-17"`)
	}
	all, err := json.Marshal(append(statements, more...))
	if err != nil {
		return "", err
	}
	policy["Statement"] = all
	whole, err := json.Marshal(policy)
	return string(whole), err
}
