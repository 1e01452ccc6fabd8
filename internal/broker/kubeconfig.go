package broker

import "encoding/json"

// renderKubeconfig returns a file with which kubectl uses a token at one server and at no other: it contains the server, its
// certificate authority and the token, and names no program. JSON is valid YAML.
func renderKubeconfig(server, namespace string, authority []byte, token string) ([]byte, error) {
	type named map[string]any
	const one = "bailey"
	return json.Marshal(named{
		"apiVersion": "v1", "kind": "Config", "current-context": one,
		"clusters": []named{{"name": one, "cluster": named{"server": server, "certificate-authority-data": authority}}},
		"users":    []named{{"name": one, "user": named{"token": token}}},
		"contexts": []named{{"name": one, "context": named{"cluster": one, "user": one, "namespace": namespace}}},
	})
}
