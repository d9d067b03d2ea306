// Command plugin-peer does the work of cp-creds in the usual way in Go: with client-go and the client authentication
// API.
//
// hack/measure-cp-creds.sh compares cp-creds with it; no image contains it. It omits what cp-creds does beyond that
// work (refusing another cluster's copy, a deadline), so that the comparison is fair.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientauthenticationv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	"k8s.io/client-go/tools/auth/exec"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	account := flag.String("managed-serviceaccount", "", "the ManagedServiceAccount whose token is wanted")
	flag.Parse()
	if err := run(context.Background(), *account); err != nil {
		fmt.Fprintln(os.Stderr, "plugin-peer:", err)
		os.Exit(1)
	}
}

// run prints the requested credential.
func run(ctx context.Context, account string) error {
	if account == "" {
		return errors.New("--managed-serviceaccount flag is required")
	}
	question, _, err := exec.LoadExecCredentialFromEnv()
	if err != nil {
		return err
	}
	cluster, err := clusterName(question)
	if err != nil {
		return err
	}
	token, err := syncedToken(ctx, cluster+"-"+account)
	if err != nil {
		return err
	}
	answer, err := answerTo(question, token)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// clusterName returns the cluster of the request, from the access provider's extension.
func clusterName(question runtime.Object) (string, error) {
	// LoadExecCredential rejects a request without a cluster.
	var raw []byte
	switch question := question.(type) {
	case *clientauthenticationv1.ExecCredential:
		raw = question.Spec.Cluster.Config.Raw
	case *clientauthenticationv1beta1.ExecCredential:
		raw = question.Spec.Cluster.Config.Raw
	}
	var config struct {
		ClusterName string `json:"clusterName"`
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &config); err != nil {
			return "", fmt.Errorf("spec.cluster.config: %w", err)
		}
	}
	if config.ClusterName == "" {
		return "", errors.New("spec.cluster.config has no clusterName")
	}
	return config.ClusterName, nil
}

// syncedToken reads the token of the Secret name, in the namespace of NAMESPACE, the kubeconfig or the Pod.
func syncedToken(ctx context.Context, name string) (string, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	if err != nil {
		return "", err
	}
	namespace := os.Getenv("NAMESPACE")
	if namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return "", err
		}
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	secret, err := clientset.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to get synced credential secret %s/%s: %w", namespace, name, err)
	}
	token := string(secret.Data["token"])
	if token == "" {
		return "", fmt.Errorf("secret %s/%s has no token", namespace, name)
	}
	return token, nil
}

// answerTo returns the request with a status, in its version.
func answerTo(question runtime.Object, token string) (runtime.Object, error) {
	expiry := expiryOf(token)
	switch question.(type) {
	case *clientauthenticationv1.ExecCredential:
		return &clientauthenticationv1.ExecCredential{
			TypeMeta: metav1.TypeMeta{
				APIVersion: clientauthenticationv1.SchemeGroupVersion.String(),
				Kind:       "ExecCredential",
			},
			Status: &clientauthenticationv1.ExecCredentialStatus{Token: token, ExpirationTimestamp: expiry},
		}, nil
	case *clientauthenticationv1beta1.ExecCredential:
		return &clientauthenticationv1beta1.ExecCredential{
			TypeMeta: metav1.TypeMeta{
				APIVersion: clientauthenticationv1beta1.SchemeGroupVersion.String(),
				Kind:       "ExecCredential",
			},
			Status: &clientauthenticationv1beta1.ExecCredentialStatus{Token: token, ExpirationTimestamp: expiry},
		}, nil
	default:
		return nil, fmt.Errorf("no answer to a %T", question)
	}
}

// expiryOf returns when a JWT expires, if it is one and has the claim.
func expiryOf(token string) *metav1.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	var claims struct {
		Expiry int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Expiry == 0 {
		return nil
	}
	return &metav1.Time{Time: time.Unix(claims.Expiry, 0)}
}
