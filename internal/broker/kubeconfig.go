package broker

import "encoding/json"

// kubeconfig is the file that has kubectl use a token at one server and nowhere else: the server, whom to believe and the token
// stand side by side, and nothing in it names a program. JSON is YAML.
func kubeconfig(server, namespace string, authority []byte, token string) ([]byte, error) {
	type named map[string]any
	const one = "bailey"
	return json.Marshal(named{
		"apiVersion": "v1", "kind": "Config", "current-context": one,
		"clusters": []named{{"name": one, "cluster": named{"server": server, "certificate-authority-data": authority}}},
		"users":    []named{{"name": one, "user": named{"token": token}}},
		"contexts": []named{{"name": one, "context": named{"cluster": one, "user": one, "namespace": namespace}}},
	})
}
