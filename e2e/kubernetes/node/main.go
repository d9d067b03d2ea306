// Command node is what a node of Kubernetes runs, in one file: kubelet, kube-proxy and kube-scheduler.
//
// Like control-plane, it answers to the name it is called by. It is a program of its own because only tests that run
// Pods need it.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// Upstream's own main packages link these for their side effects: JSON logs, and the client
	// and version metrics.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// programs maps a name to what upstream's main function of that name runs. The commands are built inside the
// functions: their flags register themselves globally, and only one program's may be there.
var programs = map[string]func() *cobra.Command{
	"kubelet":        func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":     func() *cobra.Command { return proxy.NewProxyCommand() },
	"kube-scheduler": func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	command, known := programs[filepath.Base(os.Args[0])]
	if !known {
		names := slices.Sorted(maps.Keys(programs))
		fmt.Fprintf(os.Stderr, "node: call it by one of these names: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
