// Command control-plane is a Kubernetes control plane in one file: etcd, kube-apiserver,
// kube-controller-manager and kubectl, each built from its own Go module.
//
// It answers to the name it is called by, so four links to one binary are the four programs:
//
//	ln -s control-plane etcd && ./etcd --version
//
// and called by any other name it takes the program's name as its first argument:
//
//	control-plane kubectl get namespaces
//
// One binary instead of four because they share nearly all of their code: it links once and takes
// a third of the disk. What runs is upstream's code, unchanged; only this dispatch is ours.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"

	// Upstream's own main packages link these for their side effects: JSON logs, and the client
	// and version metrics.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// programs maps a name to what upstream's main function of that name does. The components are built
// inside the functions, never at start-up: their flags register themselves globally, and only one
// program's may be there.
var programs = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kube-apiserver": func() int {
		return cli.Run(apiserver.NewAPIServerCommand())
	},
	"kube-controller-manager": func() int {
		return cli.Run(controllermanager.NewControllerManagerCommand())
	},
	"kubectl": func() int {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			// Prints the error the way kubectl users know, and exits.
			kubectlutil.CheckErr(err)
		}
		return 0
	},
}

func main() {
	program, args, ok := choose(os.Args)
	if !ok {
		names := slices.Sorted(maps.Keys(programs))
		fmt.Fprintf(os.Stderr, "usage: control-plane %s [argument]...\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Args = args
	os.Exit(programs[program]())
}

// choose says which program is meant, and its argument vector: by the name we were called by, else
// by the first argument.
func choose(args []string) (program string, rest []string, ok bool) {
	for range 2 {
		if len(args) == 0 {
			return "", nil, false
		}
		name := filepath.Base(args[0])
		if _, known := programs[name]; known {
			return name, args, true
		}
		args = args[1:]
	}
	return "", nil, false
}
