// Command bailey-link carries the connection of a gateway or a host to its control plane. They start it themselves.
package main

import "bailey/internal/fleet/link"

func main() { link.Main() }
