package main

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// The time after which a profile of an unhealthy cluster is read again.
const recheck = 10 * time.Second

// provider stands in for multicluster-runtime's providers/cluster-inventory-api, whose module the Go module proxy does
// not serve. It engages and disengages under the same conditions:
//
//   - It engages the cluster of a profile whose condition ControlPlaneHealthy is True. If the condition changes later,
//     the cluster stays engaged.
//   - It engages the cluster again after any event of the profile, unless the configurations of the client are deeply
//     equal. With cluster-inventory-api's library they never are, because each contains a function (Proxy).
//   - It disengages the cluster when the profile is gone.
type provider struct {
	access  *access.Config
	manager mcmanager.Manager

	lock    sync.Mutex
	engaged map[multicluster.ClusterName]engagement
}

type engagement struct {
	cluster cluster.Cluster
	config  *rest.Config
	end     context.CancelFunc
}

var _ multicluster.Provider = &provider{}

func newProvider(config *access.Config) *provider {
	return &provider{access: config, engaged: map[multicluster.ClusterName]engagement{}}
}

// setUp has the hub's manager reconcile profiles.
func (p *provider) setUp(manager mcmanager.Manager) error {
	p.manager = manager
	return ctrl.NewControllerManagedBy(manager.GetLocalManager()).
		For(&v1alpha1.ClusterProfile{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(p)
}

// Get returns an engaged cluster.
func (p *provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if known, ok := p.engaged[name]; ok {
		return known.cluster, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

// IndexField fails: the application uses no index.
func (p *provider) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errors.New("the clusters of this application have no indexes")
}

// Reconcile engages or disengages the cluster of a profile.
func (p *provider) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	name := multicluster.ClusterName(request.String())
	profile := &v1alpha1.ClusterProfile{}
	err := p.manager.GetLocalManager().GetClient().Get(ctx, request.NamespacedName, profile)
	if apierrors.IsNotFound(err) {
		p.disengage(name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if !meta.IsStatusConditionTrue(profile.Status.Conditions, v1alpha1.ClusterConditionControlPlaneHealthy) {
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	config, err := p.access.BuildConfigFromCP(profile)
	if err != nil {
		return ctrl.Result{}, err
	}
	p.lock.Lock()
	known, ok := p.engaged[name]
	p.lock.Unlock()
	if ok && reflect.DeepEqual(known.config, config) {
		return ctrl.Result{}, nil
	}
	p.disengage(name)
	return ctrl.Result{}, p.engage(ctx, name, config)
}

// engage starts a cluster, and engages it until it is disengaged or the manager stops, with which ctx ends.
func (p *provider) engage(ctx context.Context, name multicluster.ClusterName, config *rest.Config) error {
	engaged, err := cluster.New(config)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	go func() {
		if err := engaged.Start(ctx); err != nil {
			ctrl.Log.Error(err, "cluster ended", "cluster", name)
		}
	}()
	p.lock.Lock()
	p.engaged[name] = engagement{cluster: engaged, config: config, end: end}
	p.lock.Unlock()
	if err := p.manager.Engage(ctx, name, engaged); err != nil {
		p.disengage(name)
		return err
	}
	return nil
}

func (p *provider) disengage(name multicluster.ClusterName) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if known, ok := p.engaged[name]; ok {
		known.end()
		delete(p.engaged, name)
	}
}
