// Command multicluster-client is an application on a hub that uses multicluster-runtime: it engages the clusters of a
// namespace's ClusterProfiles, and a controller writes to each cluster the name under which it is engaged.
//
// It prints a line when multicluster-runtime engages a cluster, and one when it disengages it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// The key in the data of a ConfigMap that asks for the name of its cluster.
const key = "cluster"

func main() {
	namespace := flag.String("namespace", "", "the namespace of the application on the hub")
	providers := access.SetupProviderFileFlag()
	// controller-runtime defines the flag kubeconfig.
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *namespace, *providers); err != nil {
		fmt.Fprintln(os.Stderr, "multicluster-client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace, providers string) error {
	hub, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	accessConfig, err := access.NewFromFile(providers)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	provider := newProvider(accessConfig)
	manager, err := mcmanager.New(hub, provider, mcmanager.Options{
		Scheme: scheme,
		// It may read the profiles of its own namespace only.
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	if err := provider.setUp(manager); err != nil {
		return err
	}
	if err := manager.Add(printer{}); err != nil {
		return err
	}
	if err := mcbuilder.ControllerManagedBy(manager).
		Named("names").
		For(&corev1.ConfigMap{}).
		Complete(names(manager)); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// names returns a reconciler that writes to each ConfigMap that asks for it the name of its cluster.
func names(manager mcmanager.Manager) mcreconcile.Func {
	return func(ctx context.Context, request mcreconcile.Request) (ctrl.Result, error) {
		cluster, err := manager.GetCluster(ctx, request.ClusterName)
		if err != nil {
			return ctrl.Result{}, err
		}
		configMap := &corev1.ConfigMap{}
		if err := cluster.GetClient().Get(ctx, request.NamespacedName, configMap); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		name, asks := configMap.Data[key]
		if !asks || name == request.ClusterName.String() {
			return ctrl.Result{}, nil
		}
		configMap.Data[key] = request.ClusterName.String()
		return ctrl.Result{}, cluster.GetClient().Update(ctx, configMap)
	}
}

// printer prints which clusters are engaged and disengaged.
type printer struct{}

func (printer) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (printer) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	fmt.Println("engaged", name)
	context.AfterFunc(ctx, func() { fmt.Println("disengaged", name) })
	return nil
}
