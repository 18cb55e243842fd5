//go:build !linux

package main

import (
	"fmt"
	"os/exec"
)

func ownNetwork(*exec.Cmd) error { return fmt.Errorf("%w: that needs Linux", errNoLoss) }
