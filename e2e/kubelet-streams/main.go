// Command kubelet-streams is what a kubelet and a container runtime do for exec, attach and port-forward, and nothing
// else: the API server connects to it as to the kubelet of a node. Commands run on this machine, as this user, and ports
// are those of this machine.
//
// The protocols are served by the library that container runtimes use.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// How long a stream may be idle, and how long a client may take to open its streams.
const (
	idle     = time.Hour
	creation = 30 * time.Second
)

type pods struct{}

// ExecInContainer runs the command on this machine.
func (pods) ExecInContainer(ctx context.Context, _ string, _ string, _ string, command []string, in io.Reader, out, err io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Stdin, process.Stdout, process.Stderr = in, out, err
	// Without a terminal, standard input may stay open when the command has ended.
	process.WaitDelay = time.Second
	ended := process.Run()
	if exit, ok := ended.(*exec.ExitError); ok {
		return utilexec.CodeExitError{Err: exit, Code: exit.ExitCode()}
	}
	return ended
}

// PortForward connects to a port of this machine.
func (pods) PortForward(_ context.Context, _ string, _ string, port int32, stream io.ReadWriteCloser) error {
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	return err
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-streams:", err)
		os.Exit(1)
	}
}

func run() error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("kubelet-streams: serving at", listener.Addr())
	routes := http.NewServeMux()
	routes.HandleFunc("/exec/{namespace}/{pod}/{container}", serveExec)
	routes.HandleFunc("/portForward/{namespace}/{pod}", servePortForward)
	// SPDY takes over a connection of HTTP/1.1.
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}}
	return http.Serve(tls.NewListener(listener, config), routes)
}

func serveExec(w http.ResponseWriter, request *http.Request) {
	options, err := remotecommand.NewOptions(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	command := request.URL.Query()["command"]
	if len(command) == 0 {
		http.Error(w, "no command", http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, request, pods{}, request.PathValue("pod"), "", request.PathValue("container"), command, options, idle, creation, remotecommand.SupportedStreamingProtocols)
}

func servePortForward(w http.ResponseWriter, request *http.Request) {
	options, err := portforward.NewV4Options(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, request, pods{}, request.PathValue("pod"), "", options, idle, creation, portforward.SupportedProtocols)
}

// selfSigned is a certificate as a kubelet has one without an authority.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
