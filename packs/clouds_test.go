package packs_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/shell"

	"bailey/internal/ktest"
	"bailey/pack"
)

// TestCloudLines checks what command lines of aws, gcloud and az mean. Lines without a capability must mean nothing.
func TestCloudLines(t *testing.T) {
	list := catalog(t).All()
	for line := range strings.Lines(cloudLines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		want, line, _ := strings.Cut(line, " ")
		words, err := shell.Fields(line, nil)
		if err != nil {
			t.Fatal(line, err)
		}
		got := "-"
		for _, m := range pack.Meanings(list, words) {
			if _, err := m.Check(m.Inputs[0], true); err == nil && got == "-" {
				got = string(m.ID)
			} else if err == nil {
				got += " " + string(m.ID)
			}
		}
		if got != want {
			t.Errorf("%s means %s, want %s", line, got, want)
		}
	}
}

const cloudLines = `
aws.read aws ec2 describe-subnets --filters Name=vpc-id,Values=vpc-1 Name=tag:env,Values=prod --query 'Subnets[*].[SubnetId]' --output text
aws.read aws --region us-east-1 --profile dev --output json rds describe-db-clusters
aws.read aws --no-cli-pager sqs list-queues
aws.read aws s3 ls s3://bucket/p/ --recursive --human-readable --summarize
aws.read aws logs tail /aws/lambda/f --since 1h --format short
aws.read aws ec2 wait instance-running --instance-ids i-1 i-2
aws.read aws dynamodb scan --table-name t --max-items 5
aws.read aws lambda get-function --function-name f
aws.read aws configure list
aws.read aws sqs get-queue-attributes --queue-url https://sqs.eu-west-1.amazonaws.com/1/q --attribute-names All
aws.read-secret aws secretsmanager get-secret-value --secret-id prod/db --query SecretString --output text
aws.read-secret aws ssm get-parameter --name /x --with-decryption
aws.read-secret aws ecr get-login-password --region eu-west-1
aws.read-secret aws configure get aws_secret_access_key
aws.read-secret aws ec2 describe-vpn-connections
aws.read-secret aws s3 presign s3://bucket/key
aws.check-file aws cloudformation validate-template --template-body file://stack.yaml
aws.change aws lambda update-function-code --function-name f --zip-file fileb://f.zip
aws.change aws ec2 start-instances --instance-ids i-1
aws.change aws sns publish --topic-arn arn:aws:sns:eu-west-1:1:t --message hi
aws.access aws iam create-access-key --user-name bot
aws.access aws sts assume-role --role-arn arn:aws:iam::1:role/x --role-session-name s
aws.access aws sts get-session-token
aws.destroy aws cloudformation deploy --template-file stack.yaml --stack-name s
aws.destroy aws route53 change-resource-record-sets --hosted-zone-id Z --change-batch file://changes.json
aws.destroy aws s3 rb s3://bucket --force
aws.destroy aws timestream-query query --query-string "UNLOAD (SELECT 1) TO 's3://bucket/x'"
aws.destroy aws fis start-experiment --experiment-template-id x
aws.destroy aws ds restore-from-snapshot --snapshot-id s
aws.destroy aws dlm create-lifecycle-policy --description x
aws.destroy aws imagebuilder update-lifecycle-policy --lifecycle-policy-arn a
aws.destroy aws transfer start-remote-delete --connector-id c --delete-path /x
aws.change aws stepfunctions get-activity-task --activity-arn a
aws.change aws sagemaker create-studio-lifecycle-config --studio-lifecycle-config-name n
aws.change aws autoscaling complete-lifecycle-action --lifecycle-hook-name h
aws.read aws dynamodb query --table-name t
aws.read-secret aws configure export-credentials
- aws emr get --cluster-id j --key-pair-file k --src /a --dest b
aws.destroy aws logs put-retention-policy --log-group-name g --retention-in-days 1
aws.destroy aws s3api put-bucket-lifecycle-configuration --bucket b --lifecycle-configuration file://l.json
aws.save aws s3api get-object --bucket b --key k out.json
aws.save aws lambda invoke --function-name f /dev/stdout
aws.save aws cloudfront get-function --name f out
aws.s3-cat aws s3 cp s3://bucket/key -
aws.s3-upload aws s3 sync dist s3://bucket/site --exclude '*' --include '*.js'
aws.s3-download aws s3 sync s3://bucket/site ./site
aws.s3-copy aws s3 cp s3://bucket/key s3://other/key
aws.s3-replace aws s3 sync --delete dist s3://bucket/site
aws.s3-replace aws s3 mv s3://bucket/key s3://other/key
aws.s3-replace-local aws s3 sync s3://bucket/site ./site --delete
aws.s3-replace-local aws s3 mv key s3://bucket/key
aws.version aws --version
- aws s3 cp s3://bucket/key /etc/x
- aws s3 cp ../x s3://bucket/key
- aws s3 cp x y
- aws lambda invoke --function-name f /tmp/x
- aws lambda update-function-code --function-name f --zip-file fileb:///etc/passwd
- aws lambda update-function-code --function-name f --zip-file fileb://../x.zip
- aws ssm put-parameter --name x --value file:///run/bailey/secrets/AWS_CREDENTIALS
- aws ec2 describe-instances --endpoint-url https://evil.example.com
- aws ec2 describe-instances --endpoint https://evil.example.com
- aws ec2 describe-instances --no-verify
- aws ec2 describe-instances --debug
- aws ec2 describe-instances --cli-input-json file://x
- aws ec2 describe-instances --filters file://x
- aws ec2 describe-instances --region eu-west-1.evil.example.com/
- aws ec2 describe-instances help
- aws ec2 describe-instances -- delete-vpc
- aws ec2 frob-instances
- aws unknown describe-instances
- aws license-manager check-in-license
- aws ssm start-session --target i-1
- aws ecs execute-command --cluster c --task t --interactive --command sh
- aws configure
- aws sso login
gcloud.read gcloud compute instances describe list
gcloud.read gcloud projects list --format json --filter 'name:x'
gcloud.read gcloud --project my-project beta run services list --region europe-west1
gcloud.read gcloud compute instance-groups managed list-instances web --zone z
gcloud.read gcloud projects get-iam-policy my-project --flatten='bindings[].members' --format='table(bindings.role)'
gcloud.read gcloud functions logs read f --limit 50
gcloud.read gcloud storage cat gs://bucket/key
gcloud.read gcloud config get-value project
gcloud.read gcloud ai models list --region europe-west1
gcloud.read-secret gcloud secrets versions access latest --secret x
gcloud.read-secret gcloud secrets versions access list --secret x
gcloud.read-secret gcloud auth application-default print-access-token
gcloud.change gcloud builds submit --tag europe-docker.pkg.dev/p/r/x .
gcloud.change gcloud run services update-traffic api --to-latest
gcloud.change gcloud container clusters get-credentials c --zone z
gcloud.access gcloud iam roles create reader --project my-project --file role.yaml
gcloud.access gcloud projects remove-iam-policy-binding my-project --member=user:ann@example.org --role=roles/viewer
gcloud.key-create gcloud iam service-accounts keys create key.json --iam-account=bot@my-project.iam.gserviceaccount.com
gcloud.destroy gcloud compute instances delete list --zone z
gcloud.destroy gcloud projects set-iam-policy my-project policy.json
gcloud.destroy gcloud storage rm -r gs://bucket/site
gcloud.destroy gcloud sql import sql db gs://bucket/dump.sql
gcloud.destroy gcloud sql backups restore 1 --restore-instance db
gcloud.settings gcloud config set compute/zone europe-west1-b
gcloud.settings gcloud config configurations activate prod
gcloud.storage-upload gcloud storage cp -r dist gs://bucket/
gcloud.storage-download gcloud storage cp gs://bucket/key .
gcloud.storage-copy gcloud storage rsync -r gs://bucket/a gs://other/a
gcloud.storage-replace gcloud storage rsync -r dist gs://bucket/ --delete-unmatched-destination-objects
gcloud.version gcloud version
gcloud.version gcloud info
- gcloud config set core/account ann@example.org
- gcloud config set api_endpoint_overrides/compute https://evil.example.com/
- gcloud compute instances list --flags-file=x
- gcloud compute instances list --impersonate-service-account=bot@my-project.iam.gserviceaccount.com
- gcloud compute instances list --account x
- gcloud compute instances list --acc x
- gcloud compute instances list -- x
- gcloud compute instance-groups managed resize-requests delete x
- gcloud deploy deploy-policies delete x
- gcloud kms keys versions get-public-key 1 --key k --keyring r --location l --output-file x
- gcloud storage buckets update gs://bucket --lifecycle-file=l.json
- gcloud storage buckets update gs://bucket --lifecycle-fil=l.json
- gcloud kms keys versions get-public-key 1 --key k --keyring r --location l --outpu x
- gcloud builds submit /etc
- gcloud builds submit ../other
- gcloud compute ssh web
- gcloud compute start-iap-tunnel web 22
- gcloud docker list
- gcloud auth login
- gcloud init
az.read az vm show -g rg -n web --query name -o tsv
az.read az network nsg rule list -g rg --nsg-name x -o table
az.read az acr repository show-tags -n r --repository x
az.read az account list -o table
az.read az webapp log tail -g rg -n x
az.read-secret az keyvault secret show --vault-name v -n s
az.read-secret az webapp config appsettings list -g rg -n x
az.read-secret az storage account keys list -n acme
az.read-secret az account get-access-token
az.read-secret az iot hub policy list --hub-name h
az.read-secret az iot dps policy show --dps-name d -n p
az.check-file az deployment group what-if -g rg -f main.json
az.change az network vnet subnet create -g rg --vnet-name v -n s --address-prefixes 10.0.0.0/24 10.0.1.0/24
az.change az deployment group create -g rg -f main.json -p @prod.json
az.change az acr build -t x:1 -r registry .
az.change az aks get-credentials -g rg -n c
az.change az vm run-command invoke -g rg -n web --command-id RunShellScript --scripts uptime
az.change az aks check-acr -n c -g rg --acr r
az.change az acr check-health -n r -y
az.change az network vnet peering sync -g rg -n p --vnet-name v
az.access az ad sp create-for-rbac -n x
az.access az keyvault set-policy -n v --object-id x --secret-permissions get
az.destroy az vm delete -g rg -n web --yes
az.destroy az group delete -n x --yes --no-wait
az.destroy az storage blob sync -c c -s src --account-name acme
az.destroy az storage account management-policy create --account-name acme -g rg --policy @p.json
az.destroy az sql db replica set-primary -n d -g rg -s s --allow-data-loss
az.destroy az vm generalize -g rg -n web
az.destroy az webapp deployment slot swap -g rg -n x -s staging
az.settings az account set -s 'Acme Prod'
az.save az storage blob download --account-name acme -c c -n n -f out --auth-mode login
az.rest-get az rest --method get --url 'https://graph.microsoft.com/v1.0/me'
az.version az version
az.about az --version
- az deployment group create -g rg -f main.json --mode Complete
- az deployment group create -g rg -f main.json --mode=complete
- az deployment group create -g rg -f main.json --mod=Complete
- az stack group create -n s -g rg -f main.json --action-on-unmanage deleteAll
- az stack group create -n s -g rg -f main.json --action-on-unmanage=deleteResources
- az appconfig kv import -n a --strict -s file --path x.json --format json
- az appconfig kv list -n a --resolve-keyvault
- az containerapp show -n a -g rg --show-secrets
- az ml connection show -n c --populate-secrets
- az deployment group create -g rg -f main.json -p @/etc/passwd
- az deployment group create -g rg -f main.json -p @../x.json
- az vm list --ids @ids.txt
- az rest --method delete --url https://management.azure.com/x
- az rest --method get --url https://management.azure.com.evil.example.com/x
- az rest --method get --url https://management.azure.com/x --headers @x
- az storage blob download --account-name acme -c c -n n -f /out
- az storage blob list --account-name acme -c c --connection-string BlobEndpoint=https://evil.example.com
- az storage blob list --account-name acme -c c --blob-endpoint https://evil.example.com
- az vm list --debug
- az vm list --deb
- az vm list -h
- az interactive
- az login
`

// TestCloudToolsAnswerTheSame checks that the tools give the same answer, or the same complaint, to a line and to the call that
// it means. None of the lines needs an account.
func TestCloudToolsAnswerTheSame(t *testing.T) {
	ktest.Long(t)
	dir := t.TempDir()
	for tool, sample := range map[string]struct {
		start []string // of a line
		skip  int      // of the words of a call, which start the tool as well
		lines string
	}{
		"/usr/bin/aws": {[]string{"/usr/bin/aws"}, 0, awsSame},
		"/usr/lib/google-cloud-sdk/platform/bundledpythonunix/bin/python3": {[]string{
			"/usr/lib/google-cloud-sdk/platform/bundledpythonunix/bin/python3", "-S", "/usr/lib/google-cloud-sdk/lib/gcloud.py"}, 2, gcloudSame},
	} {
		if _, err := os.Stat(tool); err != nil {
			t.Logf("not compared: %v", err)
			continue
		}
		for line := range strings.Lines(sample.lines) {
			words, err := shell.Fields(line, nil)
			if err != nil || len(words) == 0 {
				continue
			}
			found := pack.Meanings(catalog(t).All(), words)
			if len(found) != 1 || len(found[0].Inputs) != 1 {
				t.Errorf("%s: %d meanings", line, len(found))
				continue
			}
			j := job(t, found[0].ID, found[0].Inputs[0], nil)
			env := slices.Concat([]string{"PATH=/usr/bin:/bin", "HOME=" + dir}, j.Env, []string{"CLOUDSDK_CONFIG=" + dir, "AWS_SHARED_CREDENTIALS_FILE=/dev/null"})
			got := outputOf(t, dir, env, sample.start[0], slices.Concat(sample.start[1:], j.Args[sample.skip:])...)
			if want := outputOf(t, dir, env, sample.start[0], slices.Concat(sample.start[1:], words[1:])...); got != want || got == "" {
				t.Errorf("%s:\n%s\nwant\n%s", line, got, want)
			}
		}
	}
}

const (
	awsSame = `
aws ec2 describe-vpcs --generate-cli-skeleton output --query 'Vpcs[].VpcId' --output text
aws --region eu-west-1 ec2 describe-instances --instance-ids i-1 --query x i-2 --generate-cli-skeleton
aws --output yaml ec2 terminate-instances --generate-cli-skeleton output --instance-ids i-1 i-2
`
	gcloudSame = `
gcloud --format=json config list
gcloud --project my-project compute instances delete web --zone europe-west1-b --format json
`
)
