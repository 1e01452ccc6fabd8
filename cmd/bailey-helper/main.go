// Command bailey-helper runs the helpers of a broker in jails. docs/broker.md describes it.
package main

import "bailey/internal/broker/helper"

func main() { helper.Main() }
