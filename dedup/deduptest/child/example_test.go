package child_test

import (
	"fmt"
	"syscall"
	"time"

	"github.com/firstseen/firstseen/dedup/deduptest/child"
)

func Example() {
	p, err := child.Start(child.Spec{Path: "/bin/sleep", Args: []string{"600"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	killed := p.Stop(syscall.SIGTERM, 10*time.Second)
	fmt.Println("ended:", p.Err(), "- had to be killed:", killed)
	// Output: ended: signal: terminated - had to be killed: false
}
