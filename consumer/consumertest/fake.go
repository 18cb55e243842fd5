package consumertest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Fake is a broker in this process, for fast tests and for faults on demand.
type Fake struct {
	// Addr is the address of one of its nodes, host:port, which names the others.
	Addr string
	// Cluster makes the faults.
	Cluster *kfake.Cluster
}

// NewFake starts a fake cluster, of three nodes unless an option says otherwise. It is closed at the
// test's end.
func NewFake(t testing.TB, opts ...kfake.Opt) *Fake {
	t.Helper()
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatalf("consumertest: start kfake: %v", err)
	}
	t.Cleanup(cluster.Close)
	return &Fake{Addr: cluster.ListenAddrs()[0], Cluster: cluster}
}
