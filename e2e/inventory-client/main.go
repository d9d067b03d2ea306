// Command inventory-client is an application on a hub that uses cluster-inventory-api's own library, as Kueue,
// multicluster-runtime and others do: it finds its clusters by the ClusterProfiles of a namespace, and reaches them
// with their access providers and an exec plugin.
//
// For every line on standard input it lists the namespaces of each cluster and writes a line: an object with, for each
// profile's name, the namespaces or the error. It keeps a client until the profile changes, as these applications do.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/client/clientset/versioned"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
)

// Timeout for a cluster.
const patience = 10 * time.Second

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how the hub is reached")
	namespace := flag.String("namespace", "", "the namespace of the application on the hub")
	providers := access.SetupProviderFileFlag()
	flag.Parse()
	if err := run(*kubeconfig, *namespace, *providers); err != nil {
		fmt.Fprintln(os.Stderr, "inventory-client:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace, providers string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	hub, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	accessConfig, err := access.NewFromFile(providers)
	if err != nil {
		return err
	}
	fleet := fleet{hub: hub, namespace: namespace, access: accessConfig, clusters: map[string]cluster{}}
	lines, answers := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		found, err := fleet.look(context.Background())
		if err != nil {
			return err
		}
		if err := answers.Encode(found); err != nil {
			return err
		}
	}
	return lines.Err()
}

// fleet is the application's view of its clusters.
type fleet struct {
	hub       versioned.Interface
	namespace string
	access    *access.Config
	clusters  map[string]cluster
}

// cluster is a client, and the version of the profile from which it was created.
type cluster struct {
	version string
	client  kubernetes.Interface
}

// answer is the result of listing one cluster.
type answer struct {
	Namespaces []string `json:"namespaces,omitempty"`
	Error      string   `json:"error,omitempty"`
}

func (f *fleet) look(ctx context.Context) (map[string]answer, error) {
	profiles, err := f.hub.ApisV1alpha1().ClusterProfiles(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	answers := map[string]answer{}
	for i := range profiles.Items {
		profile := &profiles.Items[i]
		namespaces, err := f.namespaces(ctx, profile)
		if err != nil {
			answers[profile.Name] = answer{Error: err.Error()}
			continue
		}
		answers[profile.Name] = answer{Namespaces: namespaces}
	}
	return answers, nil
}

func (f *fleet) namespaces(ctx context.Context, profile *v1alpha1.ClusterProfile) ([]string, error) {
	client, err := f.client(profile)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// client returns the profile's client, a new one if the profile has changed.
func (f *fleet) client(profile *v1alpha1.ClusterProfile) (kubernetes.Interface, error) {
	if known, ok := f.clusters[profile.Name]; ok && known.version == profile.ResourceVersion {
		return known.client, nil
	}
	config, err := f.access.BuildConfigFromCP(profile)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	f.clusters[profile.Name] = cluster{version: profile.ResourceVersion, client: client}
	return client, nil
}
