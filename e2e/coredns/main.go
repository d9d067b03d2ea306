// Command coredns is CoreDNS with the plugins that a cluster of tests needs: upstream's own program links all of them,
// among them the clients of several clouds, which take minutes to build.
package main

import (
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
