package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/consumer"
)

// What the deployments promise to hold: a drain by default, and the memory of the default buffer.
const (
	defaultDrain = 15 * time.Second
	memoryBound  = consumer.DefaultBufferBytes + 64<<20
)

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "deploy", name))
	require.NoError(t, err)
	return string(text)
}

// object is a piece of YAML.
type object map[string]any

// at follows a path of keys; where there is a list it takes the first.
func (o object) at(path string) any {
	var v any = map[string]any(o)
	for key := range strings.SplitSeq(path, ".") {
		if list, ok := v.([]any); ok && len(list) > 0 {
			v = list[0]
		}
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func kubernetes(t *testing.T) map[string]object {
	t.Helper()
	found := map[string]object{}
	for text := range strings.SplitSeq(readDeploy(t, "kubernetes.yaml"), "\n---\n") {
		var o map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &o), text)
		if kind := fmt.Sprint(o["kind"]); found[kind] == nil { // the first Secret is the consumer's
			found[kind] = o
		}
	}
	return found
}

func TestKubernetesConfigLoads(t *testing.T) {
	objects := kubernetes(t)
	text := objects["ConfigMap"]["data"].(map[string]any)["firstseen.yaml"].(string)
	secrets := map[string]string{}
	for name, value := range objects["Secret"]["stringData"].(map[string]any) {
		secrets[name] = value.(string)
		assert.Contains(t, text, "/"+name)
	}
	require.NoError(t, loadConfig(t, text, secrets))
}

func TestKubernetesRunsWhatThereIs(t *testing.T) {
	objects := kubernetes(t)
	for _, kind := range []string{"Deployment", "Job"} {
		container := objects[kind].at("spec.template.spec.containers").([]any)[0].(map[string]any)
		var args []string
		for _, a := range container["args"].([]any) {
			args = append(args, fmt.Sprint(a))
		}
		assert.NoError(t, checkCommandLine(args), "%s: %v", kind, args)
		assert.Equal(t, false, object(container).at("securityContext.allowPrivilegeEscalation"), kind)
		assert.Equal(t, true, object(container).at("securityContext.readOnlyRootFilesystem"), kind)
		checkImageUser(t, objects[kind])
	}
}

// checkImageUser holds the user of a pod against the one of the image.
func checkImageUser(t *testing.T, o object) {
	user := regexp.MustCompile(`(?m)^USER (\d+):`).FindStringSubmatch(readDeploy(t, "Dockerfile"))
	require.NotNil(t, user, "the image names its user by number")
	assert.Equal(t, user[1], fmt.Sprint(o.at("spec.template.spec.securityContext.runAsUser")))
	assert.Equal(t, user[1], fmt.Sprint(o.at("spec.template.spec.securityContext.fsGroup")),
		"or it can't read the secrets, which are root's")
}

func TestKubernetesLeavesTimeAndMemory(t *testing.T) {
	pod := kubernetes(t)["Deployment"].at("spec.template.spec").(map[string]any)
	assert.Greater(t, pod["terminationGracePeriodSeconds"], int(2*defaultDrain/time.Second))
	assert.Equal(t, "256Mi", object(pod).at("containers.resources.limits.memory"))
	assert.Greater(t, 256<<20, memoryBound+64<<20, "a message of 64 MiB has room")
}

// The probes of the deployment, and what Prometheus scrapes, are paths that the program serves.
func TestKubernetesAsksForPathsThatAreServed(t *testing.T) {
	deployment := kubernetes(t)["Deployment"]
	served := sourceOf(t, "consumer/service") + sourceOf(t, "consumer/admin")
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		path := fmt.Sprint(deployment.at("spec.template.spec.containers." + probe + ".httpGet.path"))
		assert.Contains(t, served, path+`"`, probe)
	}
	annotations := deployment.at("spec.template.metadata.annotations").(map[string]any)
	assert.Contains(t, served, annotations["prometheus.io/path"].(string)+`"`)
	port := fmt.Sprint(deployment.at("spec.template.spec.containers.ports.containerPort"))
	assert.Equal(t, port, annotations["prometheus.io/port"])
	assert.Contains(t, readDeploy(t, "kubernetes.yaml"), "listen: 0.0.0.0:"+port)
}

func sourceOf(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(dir), "*.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

func TestSystemdUnitIsRight(t *testing.T) {
	unit := readDeploy(t, "firstseen.service")
	line := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/firstseen (.*)$`).FindStringSubmatch(unit)
	require.NotNil(t, line)
	assert.NoError(t, checkCommandLine(strings.Fields(line[1])))
	assert.Contains(t, unit, "\nMemoryMax=256M\n")
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\w+)$`).FindStringSubmatch(unit)
	require.NotNil(t, stop)
	wait, err := time.ParseDuration(stop[1])
	require.NoError(t, err)
	assert.Greater(t, wait, 2*defaultDrain)
	verifyUnit(t, strings.ReplaceAll(unit, "/usr/local/bin/firstseen", built(t)))
}

func verifyUnit(t *testing.T, unit string) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("not verified: no systemd-analyze here")
		return
	}
	path := filepath.Join(t.TempDir(), "firstseen.service")
	require.NoError(t, os.WriteFile(path, []byte(unit), 0o600))
	out, err := exec.Command(analyze, "verify", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}

// Secrets reach the program by variables that it knows.
func TestDeploymentsNameVariablesThatTheConfigHas(t *testing.T) {
	named := regexp.MustCompile(`FIRSTSEEN_\w+`)
	for _, file := range []string{"firstseen.service", "kubernetes.yaml", "Dockerfile"} {
		for _, name := range named.FindAllString(readDeploy(t, file), -1) {
			assert.True(t, hasVariable(name), "%s: %s", file, name)
		}
	}
}

func hasVariable(name string) bool {
	_, err := config.Load("", []string{name + "=/nowhere"})
	var faults *config.Error
	return errors.As(err, &faults) &&
		!slices.ContainsFunc(faults.Faults, func(f config.Fault) bool { return f.Key == name })
}

func TestDockerfileBuilds(t *testing.T) {
	text := readDeploy(t, "Dockerfile")
	version := regexp.MustCompile(`(?m)^FROM golang:(\S+) AS build$`).FindStringSubmatch(text)
	require.NotNil(t, version)
	mod, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	require.NoError(t, err)
	assert.Contains(t, string(mod), "\ngo "+version[1])
	line := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 go build (.*)$`).FindStringSubmatch(text)
	require.NotNil(t, line)
	words := splitCommands(line[1])
	require.Len(t, words, 1)
	// -n goes through the build without compiling, which would take minutes with these flags.
	build := exec.Command("go", append([]string{"build", "-n"}, words[0]...)...)
	build.Dir = root(t)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%.2000s", out)
	assert.Contains(t, string(out), "/out/firstseen")
}

// compose.yaml is for those who have Docker: what they run is what the tests run.
func TestComposeRunsTheServersThatAreTested(t *testing.T) {
	text := readFile(t, "compose.yaml")
	checkServers(t, text)
	commands := regexp.MustCompile(`(?m)firstseen .*$`).FindAllString(text, -1)
	require.NotEmpty(t, commands)
	for _, c := range commands {
		args, _ := programArgs(strings.Fields(c))
		assert.NoError(t, checkCommandLine(args), c)
	}
}

func checkServers(t *testing.T, compose string) (parsed map[string]any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(compose), &parsed))
	pom, err := os.ReadFile(filepath.Join(root(t), "consumer", "consumertest", "kafkaserver", "pom.xml"))
	require.NoError(t, err)
	kafka := regexp.MustCompile(`<kafka.version>(.*)</kafka.version>`).FindStringSubmatch(string(pom))
	require.NotNil(t, kafka)
	assert.Equal(t, "apache/kafka:"+kafka[1], object(parsed).at("services.kafka.image"))
	assert.Equal(t, "postgres:18", object(parsed).at("services.postgres.image"))
	return parsed
}
