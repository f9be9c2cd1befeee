// Command node is what runs on a node in one binary: the component is chosen by the name that the
// binary is called by.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func command(name string) (*cobra.Command, error) {
	switch name {
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background()), nil
	case "kube-proxy":
		return proxy.NewProxyCommand(), nil
	}
	return nil, fmt.Errorf("no component is called %q", name)
}

func main() {
	cmd, err := command(filepath.Base(os.Args[0]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(cli.Run(cmd))
}
