package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// trial is how changes are tried.
type trial struct {
	most   time.Duration
	sample int
	only   string
}

// choose takes those that are asked for.
func (t *trial) choose(all []change) (chosen []change) {
	var named []change
	for _, c := range all {
		if strings.Contains(c.name, t.only) {
			named = append(named, c)
		}
	}
	if t.sample == 0 || t.sample >= len(named) {
		return named
	}
	for i := range t.sample {
		chosen = append(chosen, named[i*len(named)/t.sample])
	}
	return chosen
}

// What can come of a change.
const (
	killed   = "killed"   // a test failed
	survived = "survived" // none did
	unbuilt  = "unbuilt"  // it is no Go
)

// target tries changes of a target, but those that an earlier run has killed, and gives the survivors.
func (t *trial) target(g target, changes []change) (survivors []string, err error) {
	results, err := openResults(g.path)
	if err != nil {
		return nil, err
	}
	var limits []time.Duration
	began, counts := time.Now(), map[string]int{}
	for i, c := range changes {
		if done := results.of[c.name]; done == killed || done == unbuilt {
			counts[done]++
			continue
		}
		if limits == nil {
			if limits, err = baseline(g.tests); err != nil {
				return nil, err
			}
		}
		if time.Since(began) > t.most {
			fmt.Printf("%s: %d changes are left for another run\n", g.path, len(changes)-i)
			break
		}
		result, err := try(c, g.tests, limits)
		if err != nil {
			return nil, err
		}
		if counts[result]++; result == survived {
			survivors = append(survivors, c.name)
		}
		if err := results.add(c.name, result); err != nil {
			return nil, err
		}
	}
	fmt.Printf("%s: %d killed, %d survived, %d unbuilt, in %s\n",
		g.path, counts[killed], counts[survived], counts[unbuilt], time.Since(began).Round(time.Second))
	return survivors, nil
}

// baseline runs the tests on the code as it is, and gives the time after which each is taken to hang.
func baseline(all []tests) (limits []time.Duration, err error) {
	for _, ts := range all {
		began := time.Now()
		if passed, _, out := ts.run("", 30*time.Minute); !passed {
			return nil, fmt.Errorf("the tests of %s fail without any change:\n%s", ts.pkg, out)
		}
		limits = append(limits, 3*time.Since(began)+time.Minute)
	}
	return limits, nil
}

// try runs the tests on a change until one fails.
func try(c change, all []tests, limits []time.Duration) (result string, err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	broken, overlay := filepath.Join(dir, filepath.Base(c.file)), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(c.file)
	if err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: broken}})
	if err != nil {
		return "", err
	}
	for path, text := range map[string][]byte{broken: c.text, overlay: replace} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", err
		}
	}
	for i, ts := range all {
		if passed, built, _ := ts.run(overlay, limits[i]); !built {
			return unbuilt, nil
		} else if !passed {
			return killed, nil
		}
	}
	return survived, nil
}

func (ts tests) run(overlay string, limit time.Duration) (passed, built bool, out []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-failfast", "-vet=off", "-overlay="+overlay,
		"-timeout="+limit.String(), "-run="+ts.match, ts.pkg)
	out, err := cmd.CombinedOutput()
	return err == nil, !bytes.Contains(out, []byte("[build failed]")), out
}
