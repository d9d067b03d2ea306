// Command miniredis serves Redis' protocol from memory at an address, for Argo CD, which keeps its cache there:
//
//	miniredis 127.0.0.1:6379
package main

import (
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: miniredis ADDRESS")
		os.Exit(2)
	}
	if err := miniredis.NewMiniRedis().StartAddr(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "miniredis:", err)
		os.Exit(1)
	}
	select {}
}
