// Command bailey-broker lends credentials to gateways. docs/broker.md describes the setup.
package main

import "bailey/internal/broker/process"

func main() { process.Main() }
